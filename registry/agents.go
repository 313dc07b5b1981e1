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

// An agent is the two columns of an event that name software.
type agent struct{ object, agent string }

const farolURL = "https://github.com/farol-preservation/farol"

// Farol names this program, with its version, and the library by which it speaks to
// storage. Either may be "".
func Farol(version, library string) Agents {
	farol := agent{strings.TrimSpace("Farol " + version), farolURL}
	stores := farol
	if library != "" {
		stores.object += ", " + library
	}
	return Agents{put: stores, copy: stores, name: farol, record: farol, upload: stores, remove: stores}
}

// APTrust has the wording that the system before Farol wrote, for those whose reports
// select events by it. It names software that Farol does not use.
func APTrust() Agents {
	const minio = "https://github.com/minio/minio-go v7"
	services := agent{"APTrust preservation services", "https://github.com/APTrust/preservation-services"}
	return Agents{
		put:    agent{"preservation-services + Minio S3 client", minio},
		copy:   agent{"Go uuid library + Minio S3 library", "http://github.com/google/uuid"},
		name:   agent{"APTrust exchange/ingest processor", services.agent},
		record: services,
		upload: agent{"Minio S3 client", minio},
		remove: agent{"Minio S3 library", services.object},
	}
}

// args are the agents as statements name them.
func (a Agents) args() pgx.NamedArgs {
	args := pgx.NamedArgs{}
	for what, is := range map[string]agent{
		"put": a.put, "copy": a.copy, "name": a.name, "record": a.record, "upload": a.upload, "remove": a.remove,
	} {
		args[what+"_object"], args[what+"_agent"] = is.object, is.agent
	}
	return args
}
