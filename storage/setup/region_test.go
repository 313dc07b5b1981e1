package setup

import (
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage/wire"
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
		c := must.Get(wire.NewPool(1, time.Minute, time.Minute, time.Minute, nil).Conn(wire.Target{Bucket: "b", Endpoint: tt.endpoint, Region: tt.region, AccessKeyID: "id", SecretAccessKey: "x"}, nil, nil))(t)
		where := ""
		if l := location(c); l != nil {
			where = string(l.LocationConstraint)
		}
		if where != tt.location || isAWS(c) != tt.aws {
			t.Errorf("%s in %s: location %q, AWS %v", tt.endpoint, tt.region, where, isAWS(c))
		}
	}
}
