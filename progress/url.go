package progress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/redis/go-redis/v9"
)

// ParseURL reads where Redis is, and who we are there:
//
//	redis://user:password@host:6379/0                                     one Redis; rediss:// is with TLS
//	redis://user:password@host:6379?addr=host:6380&addr=host:6381         a cluster, by some of its nodes
//	rediss://user:password@name:6379?cluster=true                         a cluster, by a name that leads to its nodes
//	redis://user:password@host:26379/0?master_name=farol&addr=host:26380  by Sentinel, whose processes these are
//
// Sentinel may have sentinel_username and sentinel_password of its own. With TLS, ca_file is a file of PEM
// certificates that are trusted in place of the system's; cert_file and key_file are what we show.
// An error has nothing of the URL in it, since that may have a password.
func ParseURL(text string) (*redis.UniversalOptions, error) {
	unread := errors.New("the Redis URL cannot be read")
	u, err := url.Parse(text)
	if err != nil {
		return nil, unread
	}
	q := u.Query()
	files := certificates{q.Get("ca_file"), q.Get("cert_file"), q.Get("key_file")}
	o := &redis.UniversalOptions{
		MasterName: q.Get("master_name"), SentinelUsername: q.Get("sentinel_username"), SentinelPassword: q.Get("sentinel_password"),
		IsClusterMode: q.Get("cluster") == "true",
	}
	more, cluster := q["addr"], q.Get("cluster")
	for _, name := range []string{"master_name", "sentinel_username", "sentinel_password", "cluster", "addr", "ca_file", "cert_file", "key_file"} {
		q.Del(name)
	}
	u.RawQuery = q.Encode()
	one, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, unread
	}
	o.Addrs = append([]string{one.Addr}, more...)
	if err := agree(o, cluster, len(more) > 0, one.DB); err != nil {
		return nil, err
	}
	if one.TLSConfig != nil && len(more) > 0 {
		one.TLSConfig.ServerName = "" // each node shows its own name
	}
	o.DB, o.Username, o.Password, o.TLSConfig, o.Protocol, o.ClientName = one.DB, one.Username, one.Password, one.TLSConfig, one.Protocol, one.ClientName
	return o, files.into(o.TLSConfig)
}

// agree refuses what does not go together.
func agree(o *redis.UniversalOptions, cluster string, several bool, db int) error {
	isCluster := o.IsClusterMode || several && o.MasterName == ""
	switch {
	case cluster != "" && cluster != "true" && cluster != "false":
		return errors.New("the Redis URL has a parameter cluster that is neither true nor false")
	case o.IsClusterMode && o.MasterName != "":
		return errors.New("the Redis URL has cluster and master_name; Sentinel leads to no cluster")
	case o.MasterName == "" && o.SentinelUsername+o.SentinelPassword != "":
		return errors.New("the Redis URL has a user or password of Sentinel and no master_name")
	case isCluster && db != 0:
		return fmt.Errorf("the Redis URL names database %d; a cluster has only database 0", db)
	}
	return nil
}

// certificates are the files of TLS.
type certificates struct{ ca, cert, key string }

// into has a connection use them.
func (f certificates) into(c *tls.Config) error {
	switch {
	case f == certificates{}:
		return nil
	case c == nil:
		return errors.New("the Redis URL names files of certificates, and begins with redis://, which is without TLS; begin it with rediss://")
	case (f.cert == "") != (f.key == ""):
		return errors.New("the Redis URL has cert_file or key_file; give both")
	}
	if f.ca != "" {
		text, err := os.ReadFile(f.ca)
		if err != nil {
			return fmt.Errorf("the Redis URL has a ca_file that cannot be read: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("the Redis URL has a ca_file without a PEM certificate: %s", f.ca)
		}
	}
	if f.cert != "" {
		if _, err := tls.LoadX509KeyPair(f.cert, f.key); err != nil {
			return fmt.Errorf("the Redis URL has a cert_file and key_file that cannot be used: %w", err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // which may be replaced
			own, err := tls.LoadX509KeyPair(f.cert, f.key)
			return &own, err
		}
	}
	return nil
}

// An Option is of [Connect].
type Option func(*redis.UniversalOptions)

// Renewed has each new connection take the user and the password of the URL that again returns: those of
// the start may have been replaced.
func Renewed(again func() string) Option {
	return func(o *redis.UniversalOptions) {
		user, password := o.Username, o.Password
		o.CredentialsProviderContext = func(context.Context) (string, string, error) {
			if now, err := ParseURL(again()); err == nil {
				return now.Username, now.Password, nil
			}
			return user, password, nil
		}
	}
}
