package main

import (
	"context"
	"fmt"

	"github.com/farol-preservation/farol/internal/commands/mails"
	"github.com/farol-preservation/farol/pipeline/upkeep"
	"github.com/farol-preservation/farol/registry/outbox"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/mail"
)

// sendMail is the job that sends mail. Without a mail server it keeps the outbox small.
func (c *scheduling) sendMail() upkeep.Job {
	j := upkeep.Job{Name: upkeep.SendMailJob, Every: c.config.Mail.Every}
	options, ok := mails.Options(&c.config.Mail, c.Log)
	if !ok {
		j.Run = func(ctx context.Context) (string, error) { return dropMail(ctx, outbox.In(c.Services.Registry)) }
		return j
	}
	options.Link = func(ctx context.Context, kind string, user int64) (string, error) {
		return people.In(c.Services.Registry).MakeLink(ctx, user, kind)
	}
	options.Traces = c.config.Traces.On()
	sender := mail.New(c.Services.Registry, options)
	j.Run = func(ctx context.Context) (string, error) {
		result, err := sender.Run(ctx)
		c.metrics.Mail.Observe(result.Sent, result.Failed, result.GaveUp)
		return result.String(), err
	}
	return j
}

func dropMail(ctx context.Context, records outbox.Records) (string, error) {
	if err := records.Tidy(ctx); err != nil {
		return "", err
	}
	dropped, err := records.Drop(ctx)
	if dropped == 0 {
		return "FAROL_SMTP_URL is not set: no mail is sent", err
	}
	return fmt.Sprintf("FAROL_SMTP_URL is not set: %d mails were dropped after three days", dropped), err
}
