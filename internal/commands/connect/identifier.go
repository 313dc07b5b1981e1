package connect

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/internal/process/settings"
)

// Identifier has this program identify formats in children of its own. They
// outlive ctx, as stages in work do; Close ends them.
func Identifier(ctx context.Context, config settings.Identify) (*format.Identifier, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	var signatures []byte
	if config.Signatures != "" {
		if signatures, err = os.ReadFile(config.Signatures); err != nil {
			return nil, fmt.Errorf("FAROL_SIGNATURES: %w", err)
		}
	}
	formats, err := format.Start(context.WithoutCancel(ctx), format.Options{
		Command: []string{self, "internal", "identify"}, Workers: config.Workers, Memory: int64(config.Memory), Signatures: signatures,
	})
	if err != nil {
		return nil, err
	}
	if signatures != nil {
		if _, err := formats.Version(ctx); err != nil {
			formats.Close()
			return nil, fmt.Errorf("FAROL_SIGNATURES: %s: %w", config.Signatures, err)
		}
	}
	for range config.Workers { // children load their signatures now, and not while the first bag waits
		go formats.Identify(ctx, "first.txt", 5, strings.NewReader("first")) //nolint:errcheck // the first file of a bag has the same error
	}
	return formats, nil
}
