package settings

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/credentials"
	"github.com/farol-preservation/farol/storage/inventory"
)

// S3 is where the receiving, staging and restoration buckets are, and the
// preservation targets too unless they say otherwise.
type S3 struct {
	Endpoint        string         `env:"FAROL_S3_ENDPOINT" is:"an http(s) URL" doc:"S3 service of all buckets. Without it, AWS; for a preservation target, its own provider"`
	CAFile          string         `env:"FAROL_S3_CA_FILE" is:"the path of a file" doc:"PEM certificates that are trusted in addition to the system's"`
	AccessKeyID     string         `env:"AWS_ACCESS_KEY_ID" is:"an access key ID" doc:"Access key of the S3 service. Without it, the platform's: a profile, web identity (IRSA), an endpoint of ECS or EKS, or the instance's role"`
	SecretAccessKey storage.Secret `env:"AWS_SECRET_ACCESS_KEY" is:"a secret access key" doc:"Secret of that access key"`
	SessionToken    storage.Secret `env:"AWS_SESSION_TOKEN" is:"a session token" doc:"Session token of an access key that expires"`
	Profile         string         `env:"AWS_PROFILE" is:"the name of a profile" doc:"Profile of the shared configuration of AWS, if no access key is set"`
	RoleARN         string         `env:"FAROL_S3_ROLE_ARN" is:"the ARN of a role" doc:"Role to assume for all buckets but those of targets with a role or a key of their own"`
	ExternalID      string         `env:"FAROL_S3_EXTERNAL_ID" is:"an external ID" doc:"External ID that this role requires"`
	files           credentials.Files
	Region          string `env:"AWS_REGION" envDefault:"us-east-1" is:"a region" doc:"Region of the S3 service. Without FAROL_S3_ENDPOINT each preservation target has its own"`
}

// check finds keys with a part missing, and where the parts are read again.
func (c *S3) check(s *reader) {
	c.files = s.keyFiles("AWS_")
	s.checkKeyOf("AWS_", c.AccessKeyID, c.SecretAccessKey, c.SessionToken)
	s.checkRole("FAROL_S3_", c.RoleARN, c.ExternalID)
	if c.AccessKeyID == "" && !slices.ContainsFunc(platformNames(), func(name string) bool { return s.environ[name] != "" }) {
		s.wrong("AWS_ACCESS_KEY_ID", "is not set; it must be "+allowed(c, "AccessKeyID")+". If this host or container has credentials of its own, set AWS_REGION")
	}
}

// platformNames are the variables by which platforms, or people, say that credentials are there without
// a key: those of profiles, of IRSA, of ECS and EKS, and, where there is only the instance, a region.
func platformNames() []string {
	return []string{
		"AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
		"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_REGION",
	}
}

// keyFiles are the files that have the parts of a key.
func (s *reader) keyFiles(prefix string) credentials.Files {
	of := func(name string) string { return string(s.file(prefix + name)) }
	return credentials.Files{AccessKeyID: of("ACCESS_KEY_ID"), SecretAccessKey: of("SECRET_ACCESS_KEY"), SessionToken: of("SESSION_TOKEN")}
}

func (s *reader) checkKeyOf(prefix, id string, secret, token storage.Secret) {
	switch {
	case id == "" && secret+token != "":
		s.wrong(prefix+"ACCESS_KEY_ID", "is not set; the other half of the key is")
	case id != "" && secret == "":
		s.wrong(prefix+"SECRET_ACCESS_KEY", "is not set; the other half of the key is")
	}
}

var roleARN = regexp.MustCompile(`^arn:[a-z0-9-]+:iam::\d{12}:role/\S+$`)

func (s *reader) checkRole(prefix, arn, externalID string) {
	switch {
	case arn != "" && !roleARN.MatchString(arn):
		s.wrong(prefix+"ROLE_ARN", fmt.Sprintf("is %q; it must be the ARN of a role such as arn:aws:iam::123456789012:role/farol", arn))
	case arn == "" && externalID != "":
		s.wrong(prefix+"EXTERNAL_ID", "is set, but no role that it would be for: set "+prefix+"ROLE_ARN, too")
	}
}

// KeyOf names what says by which credentials a target is reached.
func (c S3) KeyOf(t storage.Target) string {
	at, role := "AWS_", "FAROL_S3_ROLE_ARN"
	if t.Name != "" && t.Credentials().Identity() != c.Target("").Credentials().Identity() {
		at = TargetPrefix(t.Name)
		role = at + "ROLE_ARN"
	}
	switch source := t.Credentials(); {
	case source.RoleARN != "":
		return role
	case !source.OfPlatform():
		return at + "ACCESS_KEY_ID and " + at + "SECRET_ACCESS_KEY"
	case source.Profile != "":
		return at + "PROFILE"
	}
	return "the credentials of the platform"
}

// Target is a bucket on the service.
func (c S3) Target(bucket string) storage.Target {
	return storage.Target{
		Bucket: bucket, Endpoint: c.Endpoint, Region: c.Region, CAFile: c.CAFile,
		AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.SessionToken, KeyFiles: c.files,
		Profile: c.Profile, RoleARN: c.RoleARN, ExternalID: c.ExternalID,
		PathStyle: c.Endpoint != "", // what is not AWS seldom has a name for each bucket
	}
}

// Staging is the bucket for the lists of items in progress, and for restorations.
type Staging struct {
	Bucket string `env:"FAROL_STAGING_BUCKET" old:"STAGING_BUCKET" envDefault:"staging" is:"a bucket name" doc:"Bucket for the lists of items in progress, and for bags that are being restored. Its name must contain \"staging\", since Cleanup deletes there"`
}

// Keep is where the interim metadata of items goes before it is deleted.
type Keep struct {
	Bucket string `env:"FAROL_KEEP_METADATA" is:"a bucket name" doc:"Bucket of the S3 service that keeps the interim metadata of each item, a line of JSON per file, before Redis forgets it. Without it, it is not kept"`
}

// Target is what of a preservation target may differ from its defaults.
// The names begin with FAROL_TARGET_<NAME>_.
type Target struct {
	Bucket          string         `env:"BUCKET" is:"a bucket name" doc:"Bucket of the target"`
	Endpoint        string         `env:"ENDPOINT" is:"an http(s) URL" doc:"S3 service of the target"`
	Region          string         `env:"REGION" is:"a region" doc:"Region of that service"`
	CAFile          string         `env:"CA_FILE" is:"the path of a file" doc:"PEM certificates that are trusted in addition to the system's"`
	AccessKeyID     string         `env:"ACCESS_KEY_ID" is:"an access key ID" doc:"Access key, if it differs from that of the other buckets"`
	SecretAccessKey storage.Secret `env:"SECRET_ACCESS_KEY" is:"a secret access key" doc:"Secret of that access key"`
	SessionToken    storage.Secret `env:"SESSION_TOKEN" is:"a session token" doc:"Session token of an access key that expires"`
	Profile         string         `env:"PROFILE" is:"the name of a profile" doc:"Profile of the shared configuration of AWS, if the target's credentials are not those of the other buckets"`
	RoleARN         string         `env:"ROLE_ARN" is:"the ARN of a role" doc:"Role to assume for the target, with its own credentials or those of the other buckets"`
	ExternalID      string         `env:"EXTERNAL_ID" is:"an external ID" doc:"External ID that this role requires"`
	StorageClass    string         `env:"STORAGE_CLASS" is:"an S3 storage class" doc:"Storage class of every write"`
	Encryption      string         `env:"ENCRYPTION" is:"AES256, aws:kms or aws:kms:dsse" oneof:"AES256 aws:kms aws:kms:dsse" doc:"Encryption by the store that every write asks for. Without it, the bucket's own"`
	KMSKey          string         `env:"KMS_KEY" is:"the ID or ARN of a key" doc:"Key of KMS that encrypts the target's objects"`
	Checksum        string         `env:"CHECKSUM" envDefault:"auto" is:"auto, sha256 or etag" oneof:"auto sha256 etag" doc:"Proof of stored bytes: auto finds out if the store keeps checksums; sha256 takes them for given, etag an ETag that is the MD5"`
	Inventory       string         `env:"INVENTORY" is:"a bucket and a folder such as inventories/daily/preservation-va/farol" doc:"Destination of the S3 Inventory of the bucket, down to the folder that has those of the dates. doctor reads it and does not list the target; schedule compares it with the records"`
}

// An Inventory is where the S3 Inventory of a target is.
type Inventory struct {
	storage.Target

	Folder  string // with a slash at the end
	Setting string // name of its setting
}

// Source is where its reports are read.
func (i Inventory) Source(client *storage.Client) (inventory.Source, error) {
	b, err := client.Bucket(i.Target)
	if err != nil {
		return inventory.Source{}, fmt.Errorf("%s: %w", i.Setting, err)
	}
	return inventory.Source{Bucket: b, Folder: i.Folder, Setting: i.Setting}, nil
}

// Storage is all the buckets that a worker writes to.
type Storage struct {
	S3
	Staging string
	Keep    string           // bucket for interim metadata; "": it is not kept
	Targets []storage.Target // by restore priority

	Inventories map[string]Inventory // by target
}

func (c *Storage) check(s *reader) {
	var staging Staging
	var keep Keep
	s.read(&staging)
	c.Staging = staging.Bucket
	if !strings.Contains(c.Staging, "staging") {
		name := s.usedName(FieldsOf("", &staging)[0])
		s.wrong(name, `is "`+c.Staging+`"; it must contain "staging", since Cleanup deletes there`)
	}
	places := map[[2]string]string{{c.Endpoint, c.Staging}: "the staging bucket"}
	s.read(&keep)
	c.Keep = keep.Bucket
	if place := [2]string{c.Endpoint, c.Keep}; c.Keep != "" {
		if other, taken := places[place]; taken {
			s.wrong("FAROL_KEEP_METADATA", `is "`+c.Keep+`", like `+other+`; it must be a bucket of its own`)
		}
		places[place] = "that of FAROL_KEEP_METADATA"
	}
	for _, spec := range storage.Targets() {
		t := s.readTarget(c.S3, spec)
		// Two targets in one place would be one copy, recorded as two.
		place := [2]string{t.Endpoint, t.Bucket}
		if other, taken := places[place]; taken {
			name := TargetPrefix(spec.Name) + "BUCKET"
			if !s.isSet(name) && s.isSet(spec.EnvVar) {
				name = spec.EnvVar
			}
			s.wrong(name, `is "`+t.Bucket+`", like `+other+`; each must have a bucket of its own`)
		}
		places[place] = "that of " + t.Name
		c.Targets = append(c.Targets, t)
	}
	c.Inventories = map[string]Inventory{}
	for _, t := range c.Targets {
		if i, ok := s.readInventory(t); ok {
			c.Inventories[t.Name] = i
			// The reports would be objects without a record, or be cleaned up.
			if other, taken := places[[2]string{i.Endpoint, i.Bucket}]; taken {
				s.wrong(i.Setting, `is in the bucket "`+i.Bucket+`", like `+other+`; it must be in a bucket of its own`)
			}
		}
	}
}

// readInventory reads where the S3 Inventory of a target is. Its bucket has to be in the region of
// the target, and is reached as that is.
func (s *reader) readInventory(t storage.Target) (Inventory, bool) {
	var own Target
	s.readBlock(TargetPrefix(t.Name), &own)
	i := Inventory{Target: t, Setting: TargetPrefix(t.Name) + "INVENTORY"}
	bucket, folder, _ := strings.Cut(strings.TrimPrefix(own.Inventory, "s3://"), "/")
	i.Name, i.Bucket, i.Folder = "", bucket, strings.Trim(folder, "/")+"/"
	if own.Inventory != "" && (bucket == "" || i.Folder == "/") {
		s.wrong(i.Setting, `is "`+own.Inventory+`"; it must be `+allowed(&own, "Inventory"))
	}
	return i, own.Inventory != ""
}

func (s *reader) readTarget(shared S3, spec storage.TargetSpec) storage.Target {
	prefix := TargetPrefix(spec.Name)
	var own Target
	s.readBlock(prefix, &own)
	s.checkKeyOf(prefix, own.AccessKeyID, own.SecretAccessKey, own.SessionToken)
	s.checkRole(prefix, own.RoleARN, own.ExternalID)
	if own.AccessKeyID != "" && own.Profile != "" {
		s.wrong(prefix+"PROFILE", "is set, and so is "+prefix+"ACCESS_KEY_ID; set only one of them")
	}

	oldBucket, _ := s.given(spec.EnvVar, "a bucket name", false)
	t := shared.Target(cmp.Or(own.Bucket, oldBucket, spec.Bucket))
	t.Name, t.Provider, t.RestorePriority = spec.Name, spec.Provider, spec.RestorePriority
	t.StorageClass = cmp.Or(own.StorageClass, spec.StorageClass)
	t.Checksum = storage.ChecksumMode(own.Checksum)
	t.Encryption, t.KMSKey = own.Encryption, own.KMSKey
	switch byKMS := strings.HasPrefix(own.Encryption, "aws:kms"); {
	case own.KMSKey != "" && !byKMS:
		s.wrong(prefix+"KMS_KEY", "is set, and "+prefix+"ENCRYPTION is not aws:kms or aws:kms:dsse")
	case byKMS && t.Checksum == storage.ChecksumETag:
		s.wrong(prefix+"CHECKSUM", "is etag, but the ETag of an object that KMS encrypts is no MD5; set it to auto")
	}
	t.CAFile = cmp.Or(own.CAFile, shared.CAFile)
	if own.AccessKeyID != "" || own.Profile != "" {
		t.AccessKeyID, t.SecretAccessKey, t.SessionToken, t.KeyFiles = own.AccessKeyID, own.SecretAccessKey, own.SessionToken, s.keyFiles(prefix)
		t.Profile, t.RoleARN, t.ExternalID = own.Profile, "", ""
	}
	if own.RoleARN != "" {
		t.RoleARN, t.ExternalID = own.RoleARN, own.ExternalID
	}
	switch {
	case own.Endpoint != "":
		t.Endpoint, t.Region, t.PathStyle = own.Endpoint, spec.Region, true
	case shared.Endpoint == "" && spec.Provider == "AWS":
		t.Region = spec.Region
	case shared.Endpoint == "":
		t.Endpoint, t.Region = "https://"+spec.Host, spec.Region
	}
	t.Region = cmp.Or(own.Region, t.Region)
	return t
}

// Unencrypted lists the endpoints of targets, each once, that are reached over plain HTTP and
// are not on this machine: whatever is on the way there can read and change what is sent.
func Unencrypted(targets ...storage.Target) (endpoints []string) {
	for _, t := range targets {
		u, err := url.Parse(t.Endpoint)
		if err == nil && u.Scheme == "http" && !loopback(u.Hostname()) && !slices.Contains(endpoints, t.Endpoint) {
			endpoints = append(endpoints, t.Endpoint)
		}
	}
	return endpoints
}

// TargetPrefix begins the names of a target's settings: Standard-VA's is
// FAROL_TARGET_STANDARD_VA_.
func TargetPrefix(target string) string {
	return "FAROL_TARGET_" + strings.ToUpper(strings.ReplaceAll(target, "-", "_")) + "_"
}

// Classes are the storage classes of the targets: they decide what has to be restored from
// an archive first.
type Classes struct{ classes map[string]string }

// ClassOf returns the storage class of a target; "" is the bucket's own.
func (c Classes) ClassOf(target string) string { return c.classes[target] }

func (c *Classes) check(s *reader) {
	c.classes = map[string]string{}
	for _, spec := range storage.Targets() {
		var own Target
		s.readBlock(TargetPrefix(spec.Name), &own)
		c.classes[spec.Name] = cmp.Or(own.StorageClass, spec.StorageClass)
	}
}
