package ability

// A Way is something that one store does and another does not. Without it, Farol takes
// another way that proves no less.
type Way string

// The ways. Those that are not known yet are taken, and what becomes of that is remembered.
const (
	SHA256       Way = "sha256"             // it checks the SHA-256 of an object as it comes, and keeps it
	PartSHA256   Way = "part-sha256"        // that of a part of an upload
	CopiedSHA256 Way = "copied-part-sha256" // it computes that of a part that it copies itself
	Trailers     Way = "trailing-sha256"    // it takes one that follows the bytes
	ETagMD5      Way = "etag-md5"           // its ETag of an object or part is the MD5
	CompleteETag Way = "complete-etag"      // it names the ETag of an object that it has put together
	ServerCopy   Way = "copy"               // it copies between its buckets by itself
	CopyPart     Way = "copy-part"          // it makes a part of an upload of a range of an object
	CopyIfMatch  Way = "copy-if-match"      // only if the source still has an ETag, that of an upload in parts too
	ReadIfMatch  Way = "read-if-match"      // likewise when it is read
	CreateOnly   Way = "if-none-match"      // it writes an object only if there is none
	Batch        Way = "batch-deletion"     // it deletes many objects by one request
	Metadata     Way = "metadata"           // it keeps the metadata that an object is written with
	LongMetadata Way = "metadata-2k"        // a value of metadata may be longer than 256 bytes
	MediaType    Way = "content-type"       // it keeps the content type that an object is written with
	Archive      Way = "restore-archived"   // it makes archived objects readable
)

// Ways lists all of them, in the order in which people read of them.
func Ways() []Way {
	return []Way{
		SHA256, PartSHA256, CopiedSHA256, Trailers, ETagMD5, CompleteETag, ServerCopy, CopyPart, CopyIfMatch, ReadIfMatch, CreateOnly, Batch, Metadata, LongMetadata, MediaType, Archive,
	}
}

// Instead says what Farol does where a store does not go a way, for people.
func (w Way) Instead() string {
	return map[Way]string{
		SHA256:       "compares ETags with the MD5, and else reads each object back and hashes it",
		PartSHA256:   "compares the ETag of each part with its MD5, and else reads the object back and hashes it",
		CopiedSHA256: "has parts copied without a checksum; compares their ETags, and else reads the object back and hashes it",
		Trailers:     "compares the ETag of each part with its MD5",
		ETagMD5:      "compares checksums, and else reads each object back and hashes it",
		CompleteETag: "asks for the object once more after each upload in parts",
		ServerCopy:   "sends the bytes through the worker",
		CopyPart:     "sends the bytes of files in a bag through the worker",
		CopyIfMatch:  "sends the bytes through the worker where the source was uploaded in parts",
		ReadIfMatch:  "reads without a condition, and compares the ETag of the answer",
		CreateOnly:   "asks whether there is an object before it writes one",
		Batch:        "deletes one by one",
		Metadata:     "keeps names and digests of files in its own database alone",
		LongMetadata: "keeps the first 256 bytes of each value of metadata",
		MediaType:    "keeps the formats of files in its own database alone",
		Archive:      "cannot restore archived copies from it",
	}[w]
}
