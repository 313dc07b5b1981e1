package storage

// A TargetSpec is what is known of a preservation target before anyone has
// configured it: the defaults, and the name of the variable that renames its
// bucket. The two targets of option Standard both get a copy of every file.
type TargetSpec struct {
	Name            string // unique
	Option          string // storage option of a bag that puts copies here
	EnvVar          string // names the bucket, read by the command line only
	Bucket          string // default bucket
	Provider        string
	Host            string // of the provider's service, without a region where the provider's own name has none
	Region          string
	StorageClass    string // S3's name; "" is the server's default, STANDARD
	RestorePriority int    // lower is preferred; unique
}

// Targets lists the preservation targets by restore priority.
func Targets() []TargetSpec {
	const (
		aws      = "s3.amazonaws.com"
		wasabiVA = "s3.us-east-1.wasabisys.com"
		wasabiOR = "s3.us-west-1.wasabisys.com"
		wasabiTX = "s3.us-central-1.wasabisys.com"
		cold     = "GLACIER"
		coldest  = "DEEP_ARCHIVE"
	)
	return []TargetSpec{
		{"Standard-VA", "Standard", "BUCKET_STANDARD_VA", "preservation-va", "AWS", aws, "us-east-1", "", 1},
		{"Wasabi-VA", "Wasabi-VA", "BUCKET_WASABI_VA", "wasabi-va", "Wasabi-VA", wasabiVA, "us-east-1", "", 2},
		{"Wasabi-OR", "Wasabi-OR", "BUCKET_WASABI_OR", "wasabi-or", "Wasabi-OR", wasabiOR, "us-west-1", "", 3},
		{"Wasabi-TX", "Wasabi-TX", "BUCKET_WASABI_TX", "wasabi-tx", "Wasabi-TX", wasabiTX, "us-central-1", "", 4},
		{"Standard-OR", "Standard", "BUCKET_STANDARD_OR", "preservation-or", "AWS", aws, "us-west-2", cold, 5},
		{"Glacier-VA", "Glacier-VA", "BUCKET_GLACIER_VA", "glacier-va", "AWS", aws, "us-east-1", cold, 6},
		{"Glacier-OH", "Glacier-OH", "BUCKET_GLACIER_OH", "glacier-oh", "AWS", aws, "us-east-2", cold, 7},
		{"Glacier-OR", "Glacier-OR", "BUCKET_GLACIER_OR", "glacier-or", "AWS", aws, "us-west-2", cold, 8},
		{"Glacier-Deep-VA", "Glacier-Deep-VA", "BUCKET_GLACIER_DEEP_VA", "glacier-deep-va", "AWS", aws, "us-east-1", coldest, 9},
		{"Glacier-Deep-OH", "Glacier-Deep-OH", "BUCKET_GLACIER_DEEP_OH", "glacier-deep-oh", "AWS", aws, "us-east-2", coldest, 10},
		{"Glacier-Deep-OR", "Glacier-Deep-OR", "BUCKET_GLACIER_DEEP_OR", "glacier-deep-or", "AWS", aws, "us-west-2", coldest, 11},
	}
}

// TargetsOf names the targets of a storage option in the order in which copies
// are made; the first is the primary one. An option that is not in [OptionNames]
// has none, and a bag that asks for it must be refused.
func TargetsOf(option string) []string {
	var names []string
	for _, t := range Targets() {
		if t.Option == option {
			names = append(names, t.Name)
		}
	}
	return names
}

// OptionNames lists the storage options that a depositor may ask for.
func OptionNames() []string {
	return []string{
		"Standard",
		"Wasabi-VA", "Wasabi-OR", "Wasabi-TX",
		"Glacier-VA", "Glacier-OH", "Glacier-OR",
		"Glacier-Deep-VA", "Glacier-Deep-OH", "Glacier-Deep-OR",
	}
}
