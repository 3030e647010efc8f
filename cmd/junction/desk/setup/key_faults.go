package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/desk/call"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/ops/admin"
	"junction/upstream/files"
)

// KeyFaults returns the faults of the API keys that connect keeps for the clients of this user. What cannot
// be read has none: the report is about the configuration.
func KeyFaults(file string) (faults []admin.ClientFault) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil
	}
	c, err := config.LoadForCommand(path)
	if err != nil || !keysOnly(c) {
		return nil
	}
	own, err := records()
	if err != nil {
		return nil
	}
	connections, err := own.Of(path)
	if err != nil {
		return nil
	}
	for _, one := range connections {
		if one.KeyFile == "" {
			continue
		}
		text, err := revision.Read(one.KeyFile)
		if err == nil {
			known := c
			if !slices.Contains(ownURLs(c, file), one.URL) { // the keys of another Junction are not known here
				known = nil
			}
			err = call.CheckKey(known, strings.TrimSpace(string(text)))
		} else if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("the file does not exist")
		}
		name := one.Client.Name
		if err != nil {
			faults = append(faults, admin.ClientFault{
				Text: fmt.Sprintf("%s has no API key that Junction accepts: %s: %v", name, one.KeyFile, err),
				Advice: fmt.Sprintf("with your API key in %s, run: %s", clients.KeyVariable,
					config.Command(file, "connect", one.Client.ID)),
			})
		}
		if files.Readable(one.KeyFile) {
			faults = append(faults, admin.ClientFault{
				Text:   fmt.Sprintf("other users of this machine can read the API key of %s in %s", name, one.KeyFile),
				Advice: "run: chmod 600 " + one.KeyFile,
			})
		}
	}
	return faults
}
