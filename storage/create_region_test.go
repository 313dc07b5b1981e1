package storage

import (
	"testing"
)

// To AWS every request for a bucket names its region, but for the one that S3 does not accept by
// its name.
func TestRegionsOfAWSAreNamedAtOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		endpoint, region, location string
		aws                        bool
	}{
		{"", "us-east-1", "", true},
		{"", "", "", true},
		{"", "us-west-2", "us-west-2", true},
		{"https://s3.eu-central-1.amazonaws.com", "eu-central-1", "eu-central-1", true},
		{"https://s3.cn-north-1.amazonaws.com.cn", "cn-north-1", "cn-north-1", true},
		{"https://s3.eu-central-2.wasabisys.com", "eu-central-2", "eu-central-2", false},
		{"https://amazonaws.com.example.org", "us-west-2", "us-west-2", false},
	} {
		b, err := NewClient(Options{}).Bucket(Target{Bucket: "b", Endpoint: tt.endpoint, Region: tt.region, AccessKeyID: "id", SecretAccessKey: "x"})
		if err != nil {
			t.Fatal(err)
		}
		location := ""
		if c := b.location(); c != nil {
			location = string(c.LocationConstraint)
		}
		if location != tt.location || b.isAWS() != tt.aws {
			t.Errorf("%s in %s: location %q, AWS %v", tt.endpoint, tt.region, location, b.isAWS())
		}
	}
}
