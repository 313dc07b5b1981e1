package accounts

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/storage/setup"
)

func institutionCORSCommand() *cobra.Command {
	var config settings.Institution
	return op.Command{
		Use:   "cors IDENTIFIER",
		Short: "Allow uploads with a browser to the receiving bucket of an institution",
		Long: `Add a rule to the CORS configuration of the receiving bucket, by which pages of
FAROL_WEB_URL may send the parts of bags that people deposit with a browser. Other rules
stay. "institution add --create-buckets" does the same; "farol check" reports buckets
without it.`,
		Example: `  farol institution cors example.edu
  farol institution cors example.edu --json`,
		Arg:  "institution by its identifier",
		Here: true,
		Check: func(*op.Call) (err error) {
			if config, err = connect.Load(settings.ReadInstitution); err == nil && config.Site.Origin() == "" {
				err = cli.Usage(errors.New("FAROL_WEB_URL is not set, so the origin of the pages is not known"), "set FAROL_WEB_URL to the URL that people use")
			}
			return err
		},
	}.Make(func(ctx context.Context, c *op.Call) error {
		in, err := institutionOf(ctx, c)
		if err != nil {
			return err
		}
		s, err := connect.Open(ctx, "institution", connect.Needs{Database: &config.Database, S3: &config.S3})
		if err != nil {
			return err
		}
		defer s.Close()
		origin := config.Site.Origin()
		if err := allowUploads(ctx, s, in.ReceivingBucket, origin); err != nil {
			return err
		}
		return cli.Printf(c.Cmd, c.JSON, map[string]string{"bucket": in.ReceivingBucket, "origin": origin}, "Pages of %s may upload to %s.\n", origin, in.ReceivingBucket)
	})
}

// allowUploads lets pages of an origin send to a receiving bucket.
func allowUploads(ctx context.Context, s *connect.Services, bucket, origin string) error {
	b, err := s.Receiving(bucket)
	if err == nil {
		err = setup.AllowUploads(ctx, b.Conn(), origin)
	}
	if err != nil {
		return cli.Failure{
			Code: cli.ExitFailed, Err: fmt.Errorf("allow uploads from %s to bucket %q: %w", origin, bucket, err),
			Next: "allow PutBucketCORS and GetBucketCORS to the key in AWS_ACCESS_KEY_ID, or add the rule with the tools of your S3 service",
		}
	}
	return nil
}
