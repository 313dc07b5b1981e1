package devstack

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// region is what the gateway says that it is in; signatures name it.
const region = "us-east-1"

// S3Settings are what the gateway's process gets to know.
type S3Settings struct {
	Addr            string        `json:"addr"`  // host:port
	Plain           string        `json:"plain"` // the same without TLS, for browsers, which do not trust our authority
	Dir             string        `json:"dir"`
	CertFile        string        `json:"cert_file"`
	KeyFile         string        `json:"key_file"`
	AccessKeyID     string        `json:"access_key_id"`
	SecretAccessKey string        `json:"secret_access_key"`
	Region          string        `json:"region"`
	RestoreDelay    time.Duration `json:"restore_delay"` // nanoseconds
	Log             string        `json:"log"`           // file for a line for each request; "": none
}

func (s *Stack) startS3(ctx context.Context) error {
	settings := S3Settings{
		Dir:         filepath.Join(s.dir, "s3"),
		CertFile:    filepath.Join(s.dir, "s3", "server.pem"),
		KeyFile:     filepath.Join(s.dir, "s3", "server.key"),
		AccessKeyID: s.secrets.AccessKeyID, SecretAccessKey: s.secrets.SecretAccessKey, Region: region,
		RestoreDelay: s.options.RestoreDelay,
	}
	if s.options.S3Log {
		settings.Log = filepath.Join(s.dir, "log", "s3-requests.log")
	}
	caFile := filepath.Join(s.dir, "s3", "ca.pem")
	if _, err := os.Stat(settings.CertFile); errors.Is(err, os.ErrNotExist) {
		if err := MakeCertificates(caFile, settings.CertFile, settings.KeyFile); err != nil {
			return fmt.Errorf("make the certificates: %w", err)
		}
	}
	run := func(ctx context.Context, addrs []string) (*child, error) {
		settings.Addr, settings.Plain = addrs[0], addrs[1]
		return s.launch(ctx, S3, "s3", settings)
	}
	addrs, _, err := s.serve(ctx, run, "s3", "s3-plain")
	if err != nil {
		return err
	}
	s.S3Plain = "http://" + addrs[1]
	s.S3Endpoint, s.S3CAFile, s.Region = "https://"+addrs[0], caFile, region
	s.AccessKeyID, s.SecretAccessKey = s.secrets.AccessKeyID, s.secrets.SecretAccessKey
	return nil
}

// MakeCertificates writes an authority and a certificate for this machine's own
// names, each good for ten years. The authority's key is thrown away: it has
// signed all that it ever will. The certificate comes last, since its presence
// says that the rest is there.
func MakeCertificates(caFile, certFile, keyFile string) error {
	now := time.Now()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Farol on this machine"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0),
		DNSNames:    []string{"localhost", "*.localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage:    x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	certDER, err := x509.CreateCertificate(rand.Reader, cert, ca, key.Public(), caKey)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		path, kind string
		der        []byte
	}{{caFile, "CERTIFICATE", caDER}, {keyFile, "PRIVATE KEY", keyDER}, {certFile, "CERTIFICATE", certDER}} {
		if err := writeFile(f.path, pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der})); err != nil {
			return err
		}
	}
	return nil
}
