package auth

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Keys seal what the database keeps and nobody may read there. Each is 32 random bytes; the
// first seals, and all of them open, so that a key can be replaced.
type Keys struct {
	again func() string // what the setting is now; nil: as it was

	mu      sync.Mutex
	text    string
	sealers []sealer
}

// sealer has a key for each purpose, so that what is sealed for one never opens as another.
type sealer struct{ key []byte }

const keySize = 32

// ParseKeys reads one key or two from a setting: base64 of 32 bytes each, separated by a
// comma.
func ParseKeys(text string) (*Keys, error) {
	sealers, err := parseKeys(text)
	return &Keys{text: text, sealers: sealers}, err
}

// KeysOf are the keys of a setting that may change. While it cannot be read, those of before count.
func KeysOf(setting func() string) (*Keys, error) {
	k, err := ParseKeys(setting())
	k.again = setting
	return k, err
}

// now are the keys that count, the one that seals first.
func (k *Keys) now() []sealer {
	if k.again == nil {
		return k.sealers
	}
	text := k.again()
	k.mu.Lock()
	defer k.mu.Unlock()
	if text != k.text {
		if sealers, err := parseKeys(text); err == nil {
			k.text, k.sealers = text, sealers
		}
	}
	return k.sealers
}

func parseKeys(text string) (sealers []sealer, err error) {
	for part := range strings.SplitSeq(text, ",") {
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(part))
		if err != nil || len(key) != keySize {
			return nil, errors.New("a key is 32 random bytes in base64, such as `openssl rand -base64 32` prints")
		}
		sealers = append(sealers, sealer{key})
	}
	if len(sealers) > 2 {
		return nil, errors.New("there are at most two keys: the new one and the one before")
	}
	return sealers, nil
}

func (s sealer) aead(purpose string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, s.key, nil, "farol "+purpose, keySize)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Seal seals a text for a purpose. It opens for the same purpose and owner only.
func (k *Keys) Seal(purpose, owner string, text []byte) ([]byte, error) {
	a, err := k.now()[0].aead(purpose)
	if err != nil {
		return nil, fmt.Errorf("seal a %s: %w", purpose, err)
	}
	return a.Seal(nil, nil, text, []byte(owner)), nil //nolint:gosec // it makes a random nonce itself
}

// SealText is [Keys.Seal] for a cookie or a form.
func (k *Keys) SealText(purpose, owner string, text []byte) (string, error) {
	sealed, err := k.Seal(purpose, owner, text)
	return base64.RawURLEncoding.EncodeToString(sealed), err
}

// OpenText opens what [Keys.SealText] has sealed.
func (k *Keys) OpenText(purpose, owner, sealed string) ([]byte, error) {
	text, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return nil, fmt.Errorf("open a %s: %w", purpose, err)
	}
	return k.Open(purpose, owner, text)
}

// Open opens what was sealed with one of the keys.
func (k *Keys) Open(purpose, owner string, sealed []byte) ([]byte, error) {
	for _, s := range k.now() {
		a, err := s.aead(purpose)
		if err != nil {
			return nil, fmt.Errorf("open a %s: %w", purpose, err)
		}
		if text, err := a.Open(nil, nil, sealed, []byte(owner)); err == nil {
			return text, nil
		}
	}
	return nil, fmt.Errorf("open a %s: it was sealed with another key; set FAROL_WEB_KEY to that key, or to both", purpose)
}

// NewKey returns a key as a setting holds it.
func NewKey() string {
	key := make([]byte, keySize)
	rand.Read(key)
	return base64.StdEncoding.EncodeToString(key)
}
