package handlers

import (
	"cmp"
	"context"
	"net/url"

	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/web/api"
)

// deposits is how bags are judged and uploaded, if there are settings for S3. The server
// serves the rest without.
func (h *house) deposits(ctx context.Context) api.Deposits {
	c, err := connect.Load(settings.Deposits{})
	if err != nil {
		h.log.InfoContext(ctx, "S3 is not set up; bags cannot be deposited with a browser", "why", err)
		return api.Deposits{}
	}
	s, err := connect.Open(ctx, "serve", connect.Needs{S3: &c.S3, Log: h.log})
	if err != nil {
		h.log.WarnContext(ctx, "cannot open the receiving buckets; bags cannot be deposited with a browser", "err", err)
		return api.Deposits{}
	}
	client := storage.NewClient(storage.Options{})
	public := func(name string) (*storage.Bucket, error) {
		t := c.S3.Target(name)
		t.Endpoint, t.PathStyle = cmp.Or(h.config.Web.S3Endpoint, t.Endpoint), true // one origin for all buckets
		return client.Bucket(t)
	}
	d := api.Deposits{Bucket: s.Receiving, Public: public, Profiles: c.Profiles.All, MaxFiles: c.MaxFiles}
	if b, err := public("bucket"); err == nil {
		if u, err := url.Parse(b.URL("")); err == nil {
			d.Endpoint = u.Scheme + "://" + u.Host
		}
	}
	return d
}
