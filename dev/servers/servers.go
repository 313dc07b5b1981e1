// Package servers holds what a child of a [devstack.Stack] runs: the S3 gateway,
// nsqd with nsqadmin, and the guard of a foreign server.
//
// It is apart from devstack because it is heavy, and because the gateway
// changes its process's working directory and standard output: it has to be
// alone in its process.
package servers

import (
	"context"
	"fmt"
	"io"

	"github.com/farol-preservation/farol/internal/devstack"
)

// Run is the body of "farol-dev internal COMMAND", for the commands "s3", "nsq",
// "mail" and "guard". The first line of in has the settings; the server runs until in ends
// or ctx does. Out gets one line, "READY", when it serves. It must be called
// from the main goroutine of a process that does nothing else.
func Run(ctx context.Context, command string, in io.Reader, out io.Writer) error {
	switch command {
	case "s3":
		return runS3(ctx, in, out)
	case "nsq":
		return runNSQ(ctx, in, out)
	case "mail":
		return runMail(ctx, in, out)
	case "guard":
		return devstack.Guard(ctx, in, out)
	default:
		return fmt.Errorf("unknown internal command %q", command)
	}
}
