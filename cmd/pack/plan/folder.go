package plan

import (
	"fmt"
	"path/filepath"
	"strings"

	"junction/cmd/pack/manifest"
)

// in adds the fact about the working directory of a command, if the manifest names one. dir is the value of
// the manifest, and full its absolute path.
func (p *Plan) in(subject string, dir manifest.Ref, full string) {
	if dir.Source != "" {
		p.add(subject, "in", p.folder(dir, full))
	}
}

// folder names a working directory. A pack of this machine stays where it is, so that the name is the whole
// path. Other packs may still move: a path that begins outside of them has no whole path yet.
func (p *Plan) folder(dir manifest.Ref, full string) string {
	if dir.Open() {
		return p.here(dir.Value())
	}
	if p.own {
		return full
	}
	relative, err := filepath.Rel(p.dir, full)
	if filepath.IsAbs(dir.Value()) && !strings.HasPrefix(dir.Source, "${PACK_DIR}") || err != nil {
		return full
	}
	above := 0
	for relative == ".." || strings.HasPrefix(relative, ".."+string(filepath.Separator)) {
		relative, above = strings.TrimPrefix(strings.TrimPrefix(relative, ".."), string(filepath.Separator)), above+1
	}
	var base string
	switch above {
	case 0:
		return p.here(full)
	case 1:
		base = "the folder that contains the pack's folder"
	default:
		base = fmt.Sprintf("the folder %d levels above the pack's folder", above)
	}
	if relative == "" {
		return base
	}
	return relative + ", in " + base
}
