package settings

import (
	"os/user"
	"slices"
	"strings"
)

// mostPerson is how long the name of a person may be: PostgreSQL cuts a program's
// name after 63 bytes, and that of the command stands before it.
const mostPerson = 40

// readPerson finds out who runs this process: who FAROL_USER says, or else the user
// of the operating system.
func (s *reader) readPerson(c *Database) {
	if c.Person == "" {
		if u, err := user.Current(); err == nil {
			c.Person = inName(u.Username)
		}
		return
	}
	if c.Person != inName(c.Person) || c.Person != strings.TrimSpace(c.Person) {
		s.wrong("FAROL_USER", "is too long for the name of a session; it must be "+allowed(c, "Person"))
	}
}

// inName is what PostgreSQL keeps of a name as it is: of any other character it makes
// a question mark.
func inName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, name)
	return name[:min(len(name), mostPerson)]
}

// Program is what a command calls itself to the database: with the person who runs
// it, whom the database records with what is changed by hand. A service has none.
func (c Database) Program(command string) string {
	name := "farol-" + command
	if c.Person == "" || slices.Contains([]string{"work", "schedule", "mirror", "serve", "read-buckets", "dev"}, command) {
		return name
	}
	return name + " " + c.Person
}
