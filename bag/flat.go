package bag

import (
	"slices"
	"strings"

	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/bag/naming"
	"github.com/farol-preservation/farol/bag/tagfile"
)

// isStray tells whether an entry that lies in no directory has the name of a file by which a
// bag is known, and that lies nowhere but at its top; also in a directory that is set off by a
// backslash.
func isStray(name string) bool {
	name = naming.WithoutDot(name)
	if _, inBag, ok := strings.Cut(name, `\`); ok {
		name = strings.TrimPrefix(inBag, `\`) // finding.Show doubles it
	}
	return tagfile.HasTags(name) || kindOf(name) == Manifest || kindOf(name) == TagManifest
}

// strayIn finds what reader.stray was in the problems of a checkpoint.
func strayIn(problems []Finding) string {
	i := slices.IndexFunc(problems, func(f Finding) bool { return f.Code == finding.IllegalPath && isStray(f.Path) })
	if i < 0 {
		return ""
	}
	return problems[i].Path
}

// unwrap makes one finding of a bag that was packed without its directory: who
// runs tar in it, or with -C, makes that mistake. Nothing of such a tar is where it
// should be, so that each of its files would have a fault, and none of these would say
// what to do. What is wrong with the tar itself stays.
func (rd *reader) unwrap() {
	if rd.stray == "" || rd.bag.Unpacked {
		return
	}
	if inside := rd.byPath[tagfile.Bagit]; rd.bag.TopDir+"/" != tagfile.PayloadDir && inside != nil && !inside.Missing {
		return // a bag in its directory, and something beside it
	}
	one, why := finding.List{}, "The files of the bag lie at the top of the tar (%s does), and must lie in one directory. "+
		"Pack the directory itself, from the one above it, as in: tar -cf bag.tar bag"
	if strings.Contains(rd.stray, `\`) {
		why = "The paths in the tar have backslashes where a tar has slashes (%s does), so that no file lies in a directory. " +
			"Pack the bag with another program, as in: tar -cf bag.tar bag"
	}
	one.Stop(finding.NoTopDir, rd.stray, why, rd.stray)
	for _, f := range rd.problems.Found {
		if cutShort([]Finding{f}) {
			one.Found = append(one.Found, f)
		}
	}
	rd.problems, rd.textProblems, rd.textWarned, rd.duplicates = one, finding.List{}, finding.List{}, finding.List{}
	rd.bag, rd.mentioned, rd.tagFiles, rd.encoded, rd.fetchLines = &Bag{}, nil, nil, nil, nil
}

// misleading finds a record of a PAX global header that says of all entries after it
// where or what they are. Some programs obey it, and archive/tar does not: the files
// would not be the same for both.
func misleading(records map[string]string) string {
	for _, key := range []string{"path", "linkpath", "size"} {
		if _, ok := records[key]; ok {
			return key
		}
	}
	if isSparse(records) {
		return "GNU.sparse"
	}
	return ""
}
