package devstack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Env returns the stack as KEY=value settings of Farol and of the AWS tools.
func (s *Stack) Env() []string {
	list := []string{
		"FAROL_DATABASE_URL=" + s.DatabaseURL,
		"FAROL_REDIS_URL=" + s.RedisURL,
		"FAROL_S3_ENDPOINT=" + s.S3Endpoint,
		"FAROL_S3_CA_FILE=" + s.S3CAFile,
		"AWS_ACCESS_KEY_ID=" + s.AccessKeyID,
		"AWS_SECRET_ACCESS_KEY=" + s.SecretAccessKey,
		"AWS_REGION=" + s.Region,
		// With the checksums that aws s3 cp would add behind each part, the gateway
		// (versitygw v1.8.0) loses its place in a connection now and then.
		"AWS_REQUEST_CHECKSUM_CALCULATION=when_required",
		"FAROL_NSQD_TCP_ADDR=" + s.NSQDTCPAddr,
		"FAROL_NSQD_HTTP_ADDR=" + s.NSQDHTTPAddr,
	}
	if s.WebAddr != "" {
		list = append(list, "FAROL_WEB_ADDR="+s.WebAddr, "FAROL_WEB_URL=http://"+s.WebAddr, "FAROL_WEB_KEY="+s.secrets.WebKey, "FAROL_WEB_S3_ENDPOINT="+s.S3Plain)
		if s.NSQAdminURL != "" {
			list = append(list, "FAROL_NSQADMIN_URL="+s.NSQAdminURL)
		}
	}
	if s.SMTPAddr != "" {
		list = append(list, "FAROL_SMTP_URL=smtp://"+s.SMTPAddr, "FAROL_MAIL_FROM=Farol <farol@localhost>")
	}
	return list
}

// WriteEnv writes [Stack.Env] to the file env in the data directory, to be read
// by a shell (". DIR/env"), and returns its path. Only its owner can read it.
func (s *Stack) WriteEnv() (string, error) {
	var b strings.Builder
	for _, setting := range s.Env() {
		key, value, _ := strings.Cut(setting, "=")
		fmt.Fprintf(&b, "export %s='%s'\n", key, strings.ReplaceAll(value, "'", `'\''`))
	}
	path := filepath.Join(s.dir, "env")
	if err := writeFile(path, []byte(b.String())); err != nil {
		return "", fmt.Errorf("write the settings: %w", err)
	}
	return path, nil
}

// writeFile replaces path as a whole, readable by its owner alone: a crash
// leaves the old file or the new one.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name()) //nolint:errcheck // the first error is the one to tell
	}
	return err
}
