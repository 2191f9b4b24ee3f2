package auth

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	keyExtension  = ".pem"
	configName    = "org.yaml"
	fileBytesMax  = 256 << 10
	timestampTick = 2 * time.Second // the coarsest time stamps of file systems in use
)

// ValidName tells whether name may be an organization's or a key's: 1 to 100 characters of [A-Za-z0-9._-], and not "." or "..".
func ValidName(name string) bool {
	if name == "" || len(name) > 100 || name == "." || name == ".." {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// organization is one folder of keys as of its last reading. It does not change.
type organization struct {
	keys   map[string]*key
	sorted []*key // by id
	config *OrgConfig
}

// folder reads ORGSDIR. It is used by one goroutine at a time.
type folder struct {
	dir        string
	logger     *slog.Logger
	files      map[string]*storedFile // by path; what the last scan met
	orgs       map[string]*organization
	complaints map[string]string // by path; what has been logged and still holds
}

// storedFile is a file's content while its metadata stays the same.
type storedFile struct {
	info fs.FileInfo
	read time.Time
	data []byte
	key  *key // parsed from data when it is a key file
}

func newFolder(dir string, logger *slog.Logger) *folder {
	return &folder{dir: dir, logger: logger}
}

// scan reads what changed and returns the organizations by name. What cannot be read is left out and logged once; an org.yaml
// that cannot be understood leaves the one before it in force.
func (f *folder) scan() map[string]*organization {
	files, complaints := make(map[string]*storedFile), make(map[string]string)
	orgs := make(map[string]*organization)
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		complaints[f.dir] = err.Error()
	}
	for _, entry := range entries {
		path := filepath.Join(f.dir, entry.Name())
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			continue
		}
		if !ValidName(entry.Name()) {
			complaints[path] = "not the name of an organization"
			continue
		}
		orgs[entry.Name()] = f.scanOrg(entry.Name(), path, files, complaints)
	}
	for path, text := range complaints {
		if f.complaints[path] != text {
			f.logger.Warn("organizations folder: entry is not in force", "path", path, "reason", text)
		}
	}
	f.files, f.complaints, f.orgs = files, complaints, orgs
	return orgs
}

func (f *folder) scanOrg(name, dir string, files map[string]*storedFile, complaints map[string]string) *organization {
	org := &organization{keys: make(map[string]*key), config: defaultOrgConfig()}
	if before := f.orgs[name]; before != nil {
		org.config = before.config
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		complaints[dir] = err.Error()
		return org
	}
	hasConfig := false
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		id, isKey := strings.CutSuffix(entry.Name(), keyExtension)
		switch {
		case entry.Name() == configName:
			hasConfig = true
			if config, err := f.config(dir, path, files, complaints); err != nil {
				complaints[path] = err.Error()
			} else {
				org.config = config
			}
		case isKey:
			if key, err := f.key(id, path, files); err != nil {
				complaints[path] = err.Error()
			} else {
				org.keys[id] = key
				org.sorted = append(org.sorted, key)
			}
		}
	}
	if !hasConfig {
		org.config = defaultOrgConfig()
	}
	return org
}

func (f *folder) key(id, path string, files map[string]*storedFile) (*key, error) {
	if !ValidName(id) {
		return nil, errors.New("not the name of a key")
	}
	file, err := f.read(path, files)
	if err != nil {
		return nil, err
	}
	if file.key == nil {
		if file.key, err = newKey(id, file.data); err != nil {
			return nil, err
		}
	}
	return file.key, nil
}

func (f *folder) config(dir, path string, files map[string]*storedFile, complaints map[string]string) (*OrgConfig, error) {
	file, err := f.read(path, files)
	if err != nil {
		return nil, err
	}
	config, err := ParseOrgConfig(file.data)
	if err != nil {
		return nil, err
	}
	for _, name := range config.SigningKeys {
		var data []byte
		if file, err := f.read(filepath.Join(dir, name), files); err != nil {
			complaints[filepath.Join(dir, name)] = err.Error()
		} else {
			data = file.data
		}
		config.SigningKeyData = append(config.SigningKeyData, data)
	}
	return config, nil
}

// read returns the content of a file, from memory when its metadata is what it was. Metadata tells nothing about a file that was
// read within a tick of its time stamp, so that one is read again.
func (f *folder) read(path string, files map[string]*storedFile) (*storedFile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	before := f.files[path]
	if before != nil && os.SameFile(before.info, info) && before.info.Size() == info.Size() &&
		before.info.ModTime().Equal(info.ModTime()) && before.read.Sub(info.ModTime()) > timestampTick {
		files[path] = before
		return before, nil
	}
	file := &storedFile{info: info, read: time.Now()}
	if file.data, err = readRegular(path, info); err != nil {
		return nil, err
	}
	if before != nil && bytes.Equal(before.data, file.data) {
		file.key = before.key
	}
	files[path] = file
	return file, nil
}

func readRegular(path string, info fs.FileInfo) ([]byte, error) {
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, fileBytesMax+1))
	if err != nil {
		return nil, err
	}
	if len(data) > fileBytesMax {
		return nil, fmt.Errorf("longer than %d bytes", fileBytesMax)
	}
	return data, nil
}
