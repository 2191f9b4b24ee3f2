package auth

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"packhorse/engine/organization"
)

// ErrFolder says that a folder of organizations has something that cannot be understood.
var ErrFolder = errors.New("auth: bad folder of organizations")

// FolderError names the file at fault and what was expected of it. It quotes no content of a key.
type FolderError struct {
	Path   string // below the folder
	Reason string
}

func (e *FolderError) Error() string { return e.Path + ": " + e.Reason }

// Is reports that the error is an [ErrFolder].
func (e *FolderError) Is(target error) bool { return target == ErrFolder }

func badFile(path, format string, args ...any) error {
	return &FolderError{path, fmt.Sprintf(format, args...)}
}

// IsOrganization reports whether a folder is that of one organization, rather than one of
// organizations: whether it has a key or an org.yaml. Errors: those of reading.
func IsOrganization(folder fs.FS) (bool, error) {
	entries, err := fs.ReadDir(folder, root)
	return slices.ContainsFunc(entries, func(entry fs.DirEntry) bool {
		return entry.Name() == configName || strings.HasSuffix(entry.Name(), keyExtension)
	}), err
}

// ReadFolder reads a folder of organizations as it is to be stored. Unlike [Open] it refuses
// whatever it does not understand, and an organization without a key. Names that begin with a dot
// are left out. Errors: [ErrFolder], those of reading.
func ReadFolder(folder fs.FS) (map[string]organization.Files, error) {
	entries, err := fs.ReadDir(folder, root)
	if err != nil {
		return nil, err
	}
	orgs := make(map[string]organization.Files)
	for _, entry := range entries {
		name := entry.Name()
		if isHidden(name) {
			continue
		}
		info, err := fs.Stat(folder, name)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			return nil, badFile(name, "want folders only, one an organization")
		}
		inside, err := fs.Sub(folder, name)
		if err != nil {
			return nil, err
		}
		if orgs[name], err = ReadOrganization(inside, name); err != nil {
			return nil, err
		}
	}
	if len(orgs) == 0 {
		return nil, badFile(root, "no organization: want ORG/KID.pem")
	}
	return orgs, nil
}

func isHidden(name string) bool { return strings.HasPrefix(name, ".") }

// ReadOrganization reads the folder of an organization of that name, as [ReadFolder] does.
func ReadOrganization(folder fs.FS, name string) (organization.Files, error) {
	if !ValidName(name) {
		return nil, badFile(name, "want the name of an organization: 1 to 100 of A-Z a-z 0-9 . _ -")
	}
	entries, err := fs.ReadDir(folder, root)
	if errors.Is(err, fs.ErrPermission) {
		return nil, badFile(name, "want a folder that this user can read")
	}
	if err != nil {
		return nil, err
	}
	files := make(organization.Files)
	for _, entry := range entries {
		if isHidden(entry.Name()) {
			continue
		}
		if files[entry.Name()], err = readWhole(folder, name, entry.Name()); err != nil {
			return nil, err
		}
	}
	return files, CheckFiles(name, files)
}

// readWhole reads a file of an organization.
func readWhole(folder fs.FS, org, name string) (_ []byte, err error) {
	at := path.Join(org, name)
	file, err := folder.Open(name)
	if errors.Is(err, fs.ErrPermission) {
		return nil, badFile(at, "want a file that this user can read")
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, badFile(at, "want a file")
	}
	data, err := io.ReadAll(io.LimitReader(file, fileBytesMax+1))
	if err == nil && len(data) > fileBytesMax {
		err = badFile(at, "want %d bytes at most", fileBytesMax)
	}
	return data, err
}

// CheckFiles checks the files that an organization is to have. Errors: [ErrFolder].
func CheckFiles(org string, files organization.Files) error {
	config := defaultOrgConfig()
	if data, found := files[configName]; found {
		var err error
		if config, err = ParseOrgConfig(data); err != nil {
			return badFile(path.Join(org, configName), "%s", oneLine(err, ErrOrgConfig))
		}
	}
	keys := 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		at := path.Join(org, name)
		id, isKey := strings.CutSuffix(name, keyExtension)
		switch {
		case isKey && !ValidName(id):
			return badFile(at, "want a key ID before .pem: 1 to 100 of A-Z a-z 0-9 . _ -")
		case isKey:
			if _, err := newKey(id, files[name]); err != nil {
				return badFile(at, "want one public key, PKIX PEM: %s", oneLine(err, ErrKey))
			}
			keys++
		case name != configName && !slices.Contains(config.SigningKeys, name):
			return badFile(at, "want KID.pem, org.yaml, or a file that signing_keys of org.yaml names")
		}
	}
	for _, signer := range config.SigningKeys {
		if files[signer] == nil {
			return badFile(path.Join(org, configName), "signing_keys: want a file %s beside it", signer)
		}
	}
	if keys == 0 {
		return badFile(org, "no key: want a KID.pem")
	}
	return nil
}

// oneLine is the text of an error on one line, without what it is known to be.
func oneLine(err, known error) string {
	return strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), known.Error()+": ")), " ")
}
