package auth

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"packhorse/engine/organization"
)

const (
	keyExtension  = ".pem"
	configName    = "org.yaml"
	root          = "." // the folder itself
	fileBytesMax  = 256 << 10
	timestampTick = 2 * time.Second // the coarsest time stamps of file systems in use

	alarmEvery = 10 * time.Minute // between two log lines about a path that cannot be read
	alarmLines = 10               // in the log for one scan
)

// ValidName reports whether name may be an organization's or a key's: 1 to 100 characters of
// [A-Za-z0-9._-], and not "." or "..".
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

// issuer is an organization as of its last reading. It does not change.
type issuer struct {
	keys    map[string]*key
	sorted  []*key // by id
	config  *OrgConfig
	blind   bool                 // it has, or may have, keys that could never be read
	version organization.Version // as a row, otherwise zero
}

// folder reads ORGSDIR. It is used by one goroutine at a time.
type folder struct {
	fsys       fs.FS
	dir        string // path of fsys, for the log
	logger     *slog.Logger
	now        func() time.Time
	files      map[string]*storedFile // by path; the files found by the last scan
	orgs       map[string]*issuer
	complaints map[string]string // by path; logged complaints that still hold
	unread     map[string]error  // by path; the failures of the last scan
	told       map[string]time.Time
}

// storedFile is a file's content while its metadata stays the same.
type storedFile struct {
	info fs.FileInfo
	read time.Time
	data []byte
	key  *key // parsed from data when it is a key file
	// settled says that the file was not being written when it was read: two scans found the same
	// content, or the file was renamed into place.
	settled bool
}

// scan is one reading of the folder. A definite result, such as a listing without a key, takes
// effect at once. After a failure the previous state of the path stays in force, and the path is
// recorded as unread.
type scan struct {
	*folder    // as of the scan before
	files      map[string]*storedFile
	complaints map[string]string
	unread     map[string]error
}

var (
	errNotRegular = errors.New("not a regular file")
	errTooLarge   = fmt.Errorf("longer than %d bytes", fileBytesMax)
)

// answers reports whether an error is a definite result about a path, rather than a failure to read
// it.
func answers(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotRegular) || errors.Is(err, errTooLarge)
}

// scan reads the changes and returns the organizations by name. Invalid entries are left out and
// logged once; an invalid org.yaml leaves the previous one in force.
func (f *folder) scan() map[string]*issuer {
	s := &scan{
		folder: f, files: make(map[string]*storedFile), complaints: make(map[string]string), unread: make(map[string]error),
	}
	orgs := make(map[string]*issuer)
	entries, err := fs.ReadDir(f.fsys, root)
	if err != nil {
		s.unread[root] = err
		orgs, s.files, s.complaints = f.orgs, f.files, f.complaints
	}
	for _, entry := range entries {
		name := entry.Name()
		isDir, err := s.isDir(entry)
		switch {
		case err != nil && ValidName(name):
			orgs[name] = s.keep(name, err)
		case err != nil || !isDir:
		case !ValidName(name):
			s.complaints[name] = "not the name of an organization"
		default:
			if org := s.org(name); org != nil {
				orgs[name] = org
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(s.complaints)) {
		if text := s.complaints[path]; f.complaints[path] != text {
			f.logger.Warn("organizations folder: invalid entry", "path", filepath.Join(f.dir, path), "reason", text)
		}
	}
	f.alarm(s.unread)
	f.files, f.complaints, f.unread, f.orgs = s.files, s.complaints, s.unread, orgs
	return orgs
}

// alarm logs unreadable paths: at once, and again periodically while they stay unreadable.
func (f *folder) alarm(unread map[string]error) {
	now, lines := f.now(), 0
	maps.DeleteFunc(f.told, func(_ string, at time.Time) bool { return now.Sub(at) >= alarmEvery })
	for _, path := range slices.Sorted(maps.Keys(unread)) {
		if _, told := f.told[path]; told {
			continue
		}
		f.told[path] = now
		if lines++; lines <= alarmLines {
			f.logger.Error("organizations folder: failed to read, keeping the last known state",
				"path", filepath.Join(f.dir, path), "error", unread[path], "unread", len(unread))
		}
	}
	if len(unread) == 0 && len(f.unread) > 0 {
		f.logger.Info("organizations folder: readable again")
	}
}

// isDir reports whether an entry is a folder, or a link to one. A broken link is not.
func (s *scan) isDir(entry fs.DirEntry) (bool, error) {
	if entry.Type()&fs.ModeSymlink == 0 {
		return entry.IsDir(), nil
	}
	info, err := fs.Stat(s.fsys, entry.Name())
	switch {
	case err == nil:
		return info.IsDir(), nil
	case answers(err):
		return false, nil
	}
	return false, err
}

// keep returns the previous state of an organization whose folder cannot be read.
func (s *scan) keep(name string, err error) *issuer {
	s.unread[name] = err
	for path, file := range s.folder.files {
		if strings.HasPrefix(path, name+"/") {
			s.files[path] = file
		}
	}
	if org := s.orgs[name]; org != nil {
		return org
	}
	return &issuer{config: unreadOrgConfig(), blind: true}
}

// org reads the folder of an organization; nil means that it is gone.
func (s *scan) org(name string) *issuer {
	entries, err := fs.ReadDir(s.fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return s.keep(name, err)
	}
	org := &issuer{keys: make(map[string]*key), config: defaultOrgConfig()}
	for _, entry := range entries {
		file := path.Join(name, entry.Name())
		id, isKey := strings.CutSuffix(entry.Name(), keyExtension)
		switch {
		case entry.Name() == configName:
			org.config = unreadOrgConfig()
			if before := s.orgs[name]; before != nil {
				org.config = before.config
			}
			config, err := s.config(name, file)
			switch {
			case err == nil && config != nil:
				org.config = config
			case errors.Is(err, fs.ErrNotExist):
				org.config = defaultOrgConfig()
			case err != nil && s.unread[file] == nil:
				s.complaints[file] = oneLine(err, ErrOrgConfig)
			}
		case isKey:
			key, err := s.key(id, file)
			switch {
			case err == nil:
				org.add(key)
			case s.unread[file] != nil:
				org.blind = true
			default:
				s.complaints[file] = oneLine(err, ErrKey)
			}
		}
	}
	return org
}

func (s *scan) key(id, path string) (*key, error) {
	if !ValidName(id) {
		return nil, errors.New("not a valid key ID")
	}
	file, err := s.read(path)
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

// config reads an org.yaml; nil without an error means that the previous one stays in force,
// because this one is being written.
func (s *scan) config(dir, name string) (*OrgConfig, error) {
	file, err := s.read(name)
	if err != nil || !file.settled {
		return nil, err
	}
	config, err := ParseOrgConfig(file.data)
	if err != nil {
		return nil, err
	}
	for _, signer := range config.SigningKeys {
		var data []byte
		signer = path.Join(dir, signer)
		if file, err := s.read(signer); err == nil {
			data = file.data
		} else if s.unread[signer] == nil {
			s.complaints[signer] = err.Error()
		}
		config.SigningKeyData = append(config.SigningKeyData, data)
	}
	return config, nil
}

// read returns the content of a file. It comes from memory if the metadata is unchanged, or if the
// file cannot be read. Metadata proves nothing for a file that was read within a tick of its time
// stamp, so that one is read again.
func (s *scan) read(path string) (*storedFile, error) {
	before := s.folder.files[path]
	file, err := s.load(path, before)
	if err != nil && !answers(err) {
		s.unread[path] = err
		if before != nil {
			file, err = before, nil
		}
	}
	if err != nil {
		return nil, err
	}
	s.files[path] = file
	return file, nil
}

func (s *scan) load(path string, before *storedFile) (*storedFile, error) {
	info, err := fs.Stat(s.fsys, path)
	if err != nil {
		return nil, err
	}
	inPlace := before != nil && os.SameFile(before.info, info)
	if inPlace && before.info.Size() == info.Size() && before.info.ModTime().Equal(info.ModTime()) &&
		before.read.Sub(info.ModTime()) > timestampTick {
		before.settled = true
		return before, nil
	}
	file := &storedFile{info: info, read: time.Now(), settled: !inPlace}
	if file.data, err = s.readRegular(path, info); err != nil {
		return nil, err
	}
	if before != nil && bytes.Equal(before.data, file.data) {
		file.key, file.settled = before.key, true
	}
	return file, nil
}

func (s *scan) readRegular(path string, info fs.FileInfo) ([]byte, error) {
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	file, err := s.fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, fileBytesMax+1))
	if err != nil {
		return nil, err
	}
	if len(data) > fileBytesMax {
		return nil, errTooLarge
	}
	return data, nil
}
