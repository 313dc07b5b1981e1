package wire

import (
	"context"

	"go.opentelemetry.io/otel/attribute"

	"github.com/farol-preservation/farol/span"
)

// called begins the span of an operation, where the work of ctx is traced; end takes its error. The
// attempts of one operation are one span.
func (c *Conn) called(ctx context.Context, operation string) (of context.Context, end func(error)) {
	if !span.Recorded(ctx) {
		return ctx, untraced
	}
	ctx, call := span.Call(ctx, "S3 "+operation,
		attribute.String("rpc.system.name", "aws-api"), attribute.String("rpc.method", "S3/"+operation), attribute.String("aws.s3.bucket", c.Target.Bucket),
		attribute.String("server.address", c.Endpoint.Hostname()), attribute.String("farol.service", c.Service()))
	return ctx, func(err error) {
		if code, _ := Words(err); err != nil && code != "" {
			call.SetAttributes(attribute.String("error.type", code))
		}
		span.End(call, err != nil)
	}
}

func untraced(error) {}
