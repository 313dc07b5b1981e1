package auth

import (
	"crypto/rand"
	"strings"
	"time"

	"github.com/farol-preservation/farol/registry/people"
)

// A device is a browser that has signed in a person before. Its cookie proves that, and
// nothing else: failures elsewhere do not lock it out, and it is no second factor.
const (
	devicePurpose = "device"
	deviceTime    = 180 * 24 * time.Hour
)

// newDevice is what the cookie of a browser holds: a random name and when it was given,
// sealed for the person.
func (a *Auth) newDevice(p people.Person) (string, error) {
	text := rand.Text()[:16] + " " + a.options.Now().UTC().Format(time.RFC3339)
	return a.options.Keys.SealText(devicePurpose, ownerOf(p.ID), []byte(text))
}

// device is the name of a browser that has signed in this person before; "" is any other.
func (a *Auth) device(cookie string, p people.Person) string {
	if cookie == "" || p.ID == 0 {
		return ""
	}
	text, err := a.options.Keys.OpenText(devicePurpose, ownerOf(p.ID), cookie)
	if err != nil {
		return ""
	}
	name, at, _ := strings.Cut(string(text), " ")
	given, err := time.Parse(time.RFC3339, at)
	if err != nil || a.options.Now().After(given.Add(deviceTime)) {
		return ""
	}
	return name
}
