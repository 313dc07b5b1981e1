package accounts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/storage/setup"
)

func institutionCORSCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "cors IDENTIFIER",
		Short: "Allow uploads with a browser to the receiving bucket of an institution",
		Long: `Add a rule to the CORS configuration of the receiving bucket, by which pages of
FAROL_WEB_URL may send the parts of bags that people deposit with a browser. Other rules
stay. "institution add --create-buckets" does the same; "farol check" reports buckets
without it.`,
		Example: `  farol institution cors example.edu
  farol institution cors example.edu --json`,
		Args: cli.OneArg("institution by its identifier"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			config, err := connect.Load(settings.ReadInstitution)
			if err != nil {
				return err
			}
			origin := config.Site.Origin()
			if origin == "" {
				return cli.Usage(errors.New("FAROL_WEB_URL is not set, so the origin of the pages is not known"), "set FAROL_WEB_URL to the URL that people use")
			}
			s, err := connect.Open(ctx, "institution", connect.Needs{Database: &config.Database, S3: &config.S3})
			if err != nil {
				return err
			}
			defer s.Close()
			in, err := s.Registry.Institution(ctx, args[0])
			if err != nil {
				return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol institution list` lists the institutions"}
			}
			if err := allowUploads(ctx, s, in.ReceivingBucket, origin); err != nil {
				return err
			}
			return cli.Printf(cmd, asJSON, map[string]string{"bucket": in.ReceivingBucket, "origin": origin}, "Pages of %s may upload to %s.\n", origin, in.ReceivingBucket)
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
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
