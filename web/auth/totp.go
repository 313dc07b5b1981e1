package auth

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/hotp"
)

// Time-based one-time passwords as RFC 6238 has them and every app knows them.
const (
	totpPeriod  = 30 * time.Second
	totpSecret  = 20 // bytes, as RFC 4226 recommends
	totpDrift   = 1  // steps by which a clock may be early or late
	codeCount   = 10
	codeBytes   = 10
	totpPurpose = "totp"
)

// Factor is a second factor that is being set up.
type Factor struct {
	Secret string `json:"secret"` // in base32, to be typed into an app
	URL    string `json:"url"`    // the same for a QR code, otpauth://
}

// newFactor makes a secret for a person.
func newFactor(issuer, email string) Factor {
	secret := make([]byte, totpSecret)
	rand.Read(secret)
	text := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(secret)
	return factorOf(issuer, email, text)
}

func factorOf(issuer, email, secret string) Factor {
	return Factor{Secret: secret, URL: fmt.Sprintf("otpauth://totp/%s:%s?secret=%s&issuer=%s&algorithm=SHA1&digits=6&period=30",
		escapeLabel(issuer), escapeLabel(email), secret, escapeLabel(issuer))}
}

// escapeLabel writes a name into the URL of a QR code: apps read %20 and no plus.
func escapeLabel(name string) string {
	return strings.ReplaceAll(url.QueryEscape(name), "+", "%20")
}

// stepOf returns the step whose code this is; false if it is of none near now.
func stepOf(secret, code string, now time.Time) (step int64, right bool) {
	code = strings.ReplaceAll(strings.TrimSpace(code), " ", "")
	current := now.Unix() / int64(totpPeriod/time.Second)
	for d := int64(-totpDrift); d <= totpDrift; d++ {
		ok, err := hotp.ValidateCustom(code, uint64(current+d), secret, hotp.ValidateOpts{Digits: otp.DigitsSix, Algorithm: otp.AlgorithmSHA1}) //nolint:gosec // after 1970
		if err == nil && ok {
			step, right = current+d, true
		}
	}
	return step, right
}

// newCodes makes recovery codes: 80 random bits each, in groups that can be read aloud.
func newCodes() []string {
	codes := make([]string, codeCount)
	for i := range codes {
		b := make([]byte, codeBytes)
		rand.Read(b)
		text := strings.ToLower(base32.StdEncoding.EncodeToString(b))
		codes[i] = text[:4] + "-" + text[4:8] + "-" + text[8:12] + "-" + text[12:]
	}
	return codes
}

// codeAsStored is a recovery code as it was made, however it was typed.
func codeAsStored(typed string) string {
	text := strings.ToLower(strings.NewReplacer("-", "", " ", "").Replace(typed))
	if len(text) != codeBytes*8/5 {
		return ""
	}
	return text[:4] + "-" + text[4:8] + "-" + text[8:12] + "-" + text[12:]
}

func ownerOf(user int64) string { return "user " + strconv.FormatInt(user, 10) }
