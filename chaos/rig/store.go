package rig

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/farol-preservation/farol/internal/devstack"
)

// A Store is an S3 service and the keys to it.
type Store struct {
	devstack.Gateway

	Client *s3.Client // of a depositor
}

// Connect sets Client.
func (s *Store) Connect(options ...func(*s3.Options)) error {
	transport, err := s.Transport()
	if err != nil {
		return err //nolint:wrapcheck // it says what it could not read
	}
	s.Client = s.Gateway.Client(transport, append(options, func(o *s3.Options) { o.HTTPClient = &http.Client{Timeout: time.Minute, Transport: transport} })...)
	return nil
}

// An Authority has signed the certificate that servers on loopback show.
type Authority struct {
	File              string // PEM, which clients trust
	CertFile, KeyFile string // PEM, of the servers
	Cert              tls.Certificate
}

// NewAuthority makes one in dir. The certificate is public.crt there, and its key private.key.
func NewAuthority(dir string) (*Authority, error) {
	a := &Authority{File: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "public.crt"), KeyFile: filepath.Join(dir, "private.key")}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = devstack.MakeCertificates(a.File, a.CertFile, a.KeyFile)
	}
	if err == nil {
		a.Cert, err = tls.LoadX509KeyPair(a.CertFile, a.KeyFile)
	}
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return a, nil
}
