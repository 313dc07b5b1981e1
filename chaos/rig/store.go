package rig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// A Store is an S3 service and the keys to it.
type Store struct {
	Endpoint                     string // URL
	CAFile                       string // PEM that https needs; "" with http
	AccessKeyID, SecretAccessKey string
	Region                       string

	Trust  *x509.CertPool // what is in CAFile
	Client *s3.Client     // of a depositor
}

// Gateway is the S3 gateway of the servers.
func (s *Servers) Gateway() Store {
	return Store{Endpoint: s.S3Endpoint, CAFile: s.S3CAFile, AccessKeyID: s.AccessKeyID, SecretAccessKey: s.SecretAccessKey, Region: s.Region}
}

// Connect sets Trust and Client.
func (s *Store) Connect(options ...func(*s3.Options)) error {
	s.Trust = x509.NewCertPool()
	if s.CAFile != "" {
		pem, err := os.ReadFile(s.CAFile)
		if err != nil {
			return fmt.Errorf("read the store's authority: %w", err)
		}
		if !s.Trust.AppendCertsFromPEM(pem) {
			return fmt.Errorf("no certificate in %s", s.CAFile)
		}
	}
	s.Client = s3.New(s3.Options{
		BaseEndpoint: &s.Endpoint, Region: s.Region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(s.AccessKeyID, s.SecretAccessKey, ""),
		HTTPClient: &http.Client{Timeout: time.Minute, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: s.Trust, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: 32,
		}},
	}, options...)
	return nil
}

// An Authority is a certificate that servers on loopback show, and that clients trust.
type Authority struct {
	File string // PEM
	Cert tls.Certificate
}

// NewAuthority makes one in dir, as public.crt with the key private.key.
func NewAuthority(dir string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "make chaos"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(48 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("write the key: %w", err)
	}
	a := &Authority{File: filepath.Join(dir, "public.crt"), Cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}
	err = errors.Join(os.MkdirAll(dir, 0o700),
		os.WriteFile(a.File, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(filepath.Join(dir, "private.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	if err != nil {
		return nil, fmt.Errorf("write the certificate: %w", err)
	}
	return a, nil
}
