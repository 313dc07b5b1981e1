package devstack

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
)

const (
	database   = "farol"
	ownerRole  = "farol_owner"
	workerRole = "farol"
	webGroup   = "farol_web"
	webRole    = "farol_serve"
)

// WebURL is the database for the server for people, as a role that the database believes
// when it says who has signed in. The role gets a new password each time.
func (s *Stack) WebURL(ctx context.Context) (string, error) {
	c, err := pgx.Connect(ctx, s.AdminURL)
	if err != nil {
		return "", fmt.Errorf("connect to the database: %w", err)
	}
	defer c.Close(ctx) //nolint:errcheck // everything was done or failed before
	password := rand.Text()
	verifier, err := scramVerifier(password)
	if err != nil {
		return "", err
	}
	for _, sql := range []string{ // the directory may be of a version without these roles
		`DO $$ BEGIN IF to_regrole('` + webGroup + `') IS NULL THEN CREATE ROLE ` + webGroup + ` NOLOGIN; END IF; END $$`,
		`DO $$ BEGIN IF to_regrole('` + webRole + `') IS NULL THEN CREATE ROLE ` + webRole + ` LOGIN IN ROLE ` + webGroup + `; END IF; END $$`,
		`ALTER ROLE ` + webRole + ` PASSWORD '` + verifier + `'`,
	} {
		if _, err := c.Exec(ctx, sql); err != nil {
			return "", fmt.Errorf("create the role of the server for people: %w", err)
		}
	}
	u, err := url.Parse(s.DatabaseURL)
	if err != nil {
		return "", fmt.Errorf("read the database's URL: %w", err)
	}
	u.User = url.UserPassword(webRole, password)
	return u.String(), nil
}

// superuser is the role that the cluster is made by. In a data directory of an older
// version it is farol, and PostgreSQL lets nobody take that from it.
func (s secrets) superuser() string {
	if s.OwnerPassword == "" {
		return workerRole
	}
	return "postgres"
}

// setup are the statements that a new cluster begins with, each on a line: the roles
// of Farol, which are no superusers, and its database.
func (s secrets) setup() (string, error) {
	owner, err := scramVerifier(s.OwnerPassword)
	if err != nil {
		return "", err
	}
	worker, err := scramVerifier(s.WorkPassword)
	if err != nil {
		return "", err
	}
	return strings.Join([]string{
		"CREATE ROLE farol_admin NOLOGIN",
		"CREATE ROLE farol_auditor NOLOGIN",
		"CREATE ROLE " + webGroup + " NOLOGIN",
		"CREATE ROLE " + ownerRole + " LOGIN PASSWORD '" + owner + "'",
		"CREATE ROLE " + workerRole + " LOGIN PASSWORD '" + worker + "'",
		"GRANT pg_read_all_stats TO " + workerRole, // who holds vacuum up
		"CREATE DATABASE " + database + " OWNER " + ownerRole,
	}, "\n") + "\n", nil
}

// roleURLs says how each role comes to the database at an address.
func (s *Stack) roleURLs(addr string) error {
	as := func(who *url.Userinfo) string {
		return (&url.URL{Scheme: "postgres", User: who, Host: addr, Path: database, RawQuery: "sslmode=disable"}).String()
	}
	super := url.UserPassword(s.secrets.superuser(), s.secrets.PostgresPassword)
	if s.options.StandbyOf != "" {
		primary, err := url.Parse(s.options.StandbyOf)
		if err != nil {
			return fmt.Errorf("read the primary's URL: %w", err)
		}
		super = primary.User // a copy has its users
	}
	s.AdminURL = as(super)
	s.OwnerURL, s.DatabaseURL = s.AdminURL, s.AdminURL
	if s.options.StandbyOf == "" && s.secrets.OwnerPassword != "" {
		s.OwnerURL = as(url.UserPassword(ownerRole, s.secrets.OwnerPassword))
		s.DatabaseURL = as(url.UserPassword(workerRole, s.secrets.WorkPassword))
	}
	return nil
}

// scramVerifier is what PostgreSQL keeps of a password, and takes in its place. It
// is derived in one step. The usual 4096 are there for passwords that can be guessed,
// which a random one cannot, and each client takes them again for each connection.
func scramVerifier(password string) (string, error) {
	salt := make([]byte, 16)
	rand.Read(salt)
	salted, err := pbkdf2.Key(sha256.New, password, salt, 1, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("derive the password's verifier: %w", err)
	}
	key := func(name string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(name))
		return mac.Sum(nil)
	}
	stored, text := sha256.Sum256(key("Client Key")), base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$1:%s$%s:%s", text(salt), text(stored[:]), text(key("Server Key"))), nil
}
