package format

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/richardlehane/siegfried"
	"github.com/richardlehane/siegfried/pkg/static"
)

// ErrSignatures says that a signature file cannot be used.
var ErrSignatures = errors.New("not a signature file of siegfried that this program can read; build it with the roy of siegfried 1.11")

// load reads a signature file, or takes the built-in one.
func load(file []byte) (sf *siegfried.Siegfried, err error) {
	if len(file) == 0 {
		sf = static.New()
		if len(sf.Identifiers()) == 0 {
			return nil, errors.New("format: the built-in signatures cannot be loaded")
		}
		return sf, nil
	}
	// Siegfried trusts its files, and one that is cut short makes it panic.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrSignatures, r)
		}
	}()
	sf, err = siegfried.LoadReader(bytes.NewReader(file))
	if err == nil && len(sf.Identifiers()) == 0 {
		err = errors.New("it has no formats")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSignatures, err)
	}
	return sf, nil
}
