package registry

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// Agents are the names of software under which PREMIS events go on record, by what
// was done. Digests, formats, bags and viruses are judged by software of their own,
// which is named wherever these are.
type Agents struct {
	put    agent // the first copy of a file was made
	copy   agent // a further one was, or a copy has got its address
	name   agent // a file has got its identifier
	record agent // what concerns an object as a whole
	upload agent // all files of an object were stored
	remove agent // copies were deleted
}

// An agent is the two columns of an event that name software, and, where that is said in
// words of its own, what was done and how.
type agent struct{ object, agent, what, how string }

const farolURL = "https://github.com/farol-preservation/farol"

// Farol names this program, with its version, and the library by which it speaks to
// storage. Either may be "".
func Farol(version, library string) Agents {
	farol := agent{object: strings.TrimSpace("Farol " + version), agent: farolURL}
	stores := farol
	if library != "" {
		stores.object += ", " + library
	}
	all := stores
	all.what, all.how = "Copied files to preservation storage", "Each copy was verified at its provider"
	return Agents{put: stores, copy: stores, name: farol, record: farol, upload: all, remove: stores}
}

// APTrust has the wording that the system before Farol wrote, for those whose reports
// select events by it. It names software that Farol does not use, and what that did.
func APTrust() Agents {
	const minio = "https://github.com/minio/minio-go v7"
	services := agent{object: "APTrust preservation services", agent: "https://github.com/APTrust/preservation-services"}
	return Agents{
		put:    agent{object: "preservation-services + Minio S3 client", agent: minio, how: "Put using md5 checksum"},
		copy:   agent{object: "Go uuid library + Minio S3 library", agent: "http://github.com/google/uuid"},
		name:   agent{object: "APTrust exchange/ingest processor", agent: services.agent},
		record: services,
		upload: agent{
			object: "Minio S3 client", agent: minio,
			what: "Copied files to perservation storage", //nolint:misspell // as every stored row spells it
			how:  "Multipart put using s3 etags",
		},
		remove: agent{object: "Minio S3 library", agent: services.object},
	}
}

// args are the agents as statements name them.
func (a Agents) args() pgx.NamedArgs {
	args := pgx.NamedArgs{}
	for what, is := range map[string]agent{
		"put": a.put, "copy": a.copy, "name": a.name, "record": a.record, "upload": a.upload, "remove": a.remove,
	} {
		args[what+"_object"], args[what+"_agent"] = is.object, is.agent
		args[what+"_what"], args[what+"_how"] = is.what, is.how
	}
	return args
}

// EventArgs name the agents of the registry's events for a statement that writes some.
func (r *Registry) EventArgs() pgx.NamedArgs { return r.agents.args() }
