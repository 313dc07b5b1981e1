package storage

import (
	"regexp"
	"strings"
)

// credentials are what stands in a URL between :// and the last @. What is no URL any
// more, since its password has a slash in it, is matched as well.
var credentials = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'` + "`" + `<>]*@`)

// signatures are the parameters of a URL that let its reader do what its maker may.
var signatures = regexp.MustCompile(`(?i)([?&](?:x-amz-signature|x-amz-credential|x-amz-security-token|password|sslpassword|secret|token)=)[^&\s"'<>]+`)

// passwords are those of PostgreSQL's other form of a connection string: host=db
// password=secret.
var passwords = regexp.MustCompile(`(?i)\b((?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s&"'<>]+)`)

// Redact returns a text with the credentials of each URL and connection string in it
// replaced by stars. It is for whatever people see: logs, errors, checks. Of a URL whose
// path has an @ nothing is taken.
func Redact(text string) string {
	text = passwords.ReplaceAllString(text, "${1}***")
	if !strings.Contains(text, "://") {
		return text
	}
	text = credentials.ReplaceAllStringFunc(text, func(url string) string {
		scheme, rest, _ := strings.Cut(url, "://")
		if host, path, isPath := strings.Cut(rest, "/"); isPath && !mayBeLogin(host) && path != "" {
			return url
		}
		return scheme + "://***@"
	})
	return signatures.ReplaceAllString(text, "${1}***")
}

// mayBeLogin tells whether what stands before the first slash of a URL may be a user
// and the beginning of a password, and not a host with its port.
func mayBeLogin(host string) bool {
	if strings.Contains(host, "@") {
		return true
	}
	_, port, ok := strings.Cut(host, ":")
	return ok && strings.Trim(port, "0123456789") != "" && !strings.HasPrefix(host, "[")
}
