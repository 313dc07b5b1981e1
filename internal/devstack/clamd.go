package devstack

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// What the clamd of a stack finds, and what it calls that. It knows no other
// signatures, and so needs none of ClamAV's.
const (
	Virus     = "This is what the virus scanner of Farol's tests has to find, and no virus."
	VirusName = "Farol.Test.UNOFFICIAL" // which is what clamd adds to names that are not ClamAV's
)

// Limits of the clamd of a stack, in bytes: of a stream that it takes, and of a
// file that it looks into. What lies between them it reports.
const (
	ClamdStreamMax = 2 << 20
	ClamdFileMax   = 1 << 20
)

// startClamd runs ClamAV's daemon with one signature.
func (s *Stack) startClamd(ctx context.Context) error {
	path, err := find("clamd", "clamav-daemon", "clamav")
	if err != nil {
		return err
	}
	run := func(ctx context.Context, addrs []string) (*child, error) { return s.runClamd(ctx, path, addrs[0]) }
	addrs, _, err := s.serve(ctx, run, "clamd")
	if err != nil {
		return err
	}
	s.ClamdAddr = addrs[0]
	return nil
}

func (s *Stack) runClamd(ctx context.Context, path, addr string) (*child, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("read the address: %w", err)
	}
	home := filepath.Join(s.dir, "clamd")
	signatures, temporary, config := filepath.Join(home, "db"), filepath.Join(home, "tmp"), filepath.Join(home, "clamd.conf")
	err = errors.Join(
		os.MkdirAll(signatures, 0o700), os.MkdirAll(temporary, 0o700),
		os.WriteFile(filepath.Join(signatures, "farol.ndb"), []byte("Farol.Test:0:*:"+hex.EncodeToString([]byte(Virus))+"\n"), 0o600),
		os.WriteFile(config, fmt.Appendf(nil, `Foreground yes
DatabaseDirectory %s
TemporaryDirectory %s
TCPAddr %s
TCPSocket %s
StreamMaxLength %d
MaxFileSize %d
AlertExceedsMax yes
`, signatures, temporary, host, port, ClamdStreamMax, ClamdFileMax), 0o600))
	if err != nil {
		return nil, fmt.Errorf("write clamd's settings: %w", err)
	}
	return s.guard(ctx, Clamd, guarded{
		Path: path, Args: []string{"--config-file=" + config}, Dir: home, UID: -1, GID: -1, Stop: syscall.SIGTERM, GraceMS: 5_000,
	}, func() bool { return listens(ctx, addr) })
}
