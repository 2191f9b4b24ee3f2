package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"packhorse/api"
	"packhorse/api/audit"
	"packhorse/api/auth"
	"packhorse/api/rest"
	"packhorse/cmd/packhorse/otlp"
	"packhorse/engine/outbound"
	"packhorse/odb/file/s3"
	"packhorse/odb/kv/postgres"
	"packhorse/refs"
)

// valueKinds are what the text of a flag or an argument may be. The tag `is` names one; every flag
// and argument whose value is a text, and not one of a few, has that tag. A check returns what is
// wrong with a value and what was expected. It looks at files and folders, and changes nothing.
var valueKinds = map[string]func(value string) error{
	"text":          func(string) error { return nil }, // any
	"address":       checkAddress,
	"url":           checkURL,
	"file":          checkFile,
	"new file":      checkNewFile,
	"absent file":   checkAbsentFile,
	"audit log":     checkAuditLog,
	"folder":        checkFolder,
	"own folder":    checkOwnFolder,
	"new folder":    checkNewFolder,
	"absent folder": checkAbsentFolder,
	"any folder":    checkAnyFolder,
	"empty folder":  checkEmptyFolder,
	"bucket":        checkBucket,
	"collector": func(value string) error {
		_, err := otlp.CheckEndpoint(value)
		return err
	},
	"database":   postgres.CheckURL,
	"network":    checkNetwork,
	"origin":     func(value string) error { return api.CheckOrigins([]string{value}) },
	"reachable":  checkReachable,
	"number":     checkNumber,
	"name":       checkName,
	"repository": checkRepository,
	"token's":    checkTokenRepository,
	"repository id": func(value string) error {
		if _, err := refs.ParseRepoID(value); err != nil {
			return fmt.Errorf("%q is not the ID of a repository: expected one that repos list --deleted prints", value)
		}
		return nil
	},
	"op":          checkOp,
	"ref policy":  func(value string) error { return checkPolicy(value, refOps) },
	"path policy": func(value string) error { return checkPolicy(value, pathOps) },
}

// checkValues checks what the command line, the environment and the configuration file give to the
// selected command. Errors: a [*usageError] that names the flag or the argument.
func checkValues(ctx *kong.Context, config *configFile) error {
	for _, flag := range ctx.Flags() {
		value := ctx.FlagValue(flag)
		if reflect.ValueOf(value).IsZero() && !flag.Required && isUnset(ctx, flag, config) {
			continue
		}
		if err := checkValue(flag.Value, value); err != nil {
			return &usageError{fmt.Sprintf("--%s: %v%s", flag.Name, err, sourceOf(ctx, flag, config))}
		}
	}
	for _, path := range ctx.Path {
		if path.Positional == nil {
			continue
		}
		if err := checkValue(path.Positional, path.Positional.Target.Interface()); err != nil {
			return &usageError{fmt.Sprintf("<%s>: %v", path.Positional.Name, err)}
		}
	}
	return nil
}

// isUnset reports whether nothing gives a value to a flag.
func isUnset(ctx *kong.Context, flag *kong.Flag, config *configFile) bool {
	_, inFile := config.values[flag.Name]
	return !inFile && environmentOf(flag) == "" && !isTyped(ctx, flag)
}

// isTyped reports whether a flag is on the command line.
func isTyped(ctx *kong.Context, flag *kong.Flag) bool {
	return slices.ContainsFunc(ctx.Path, func(p *kong.Path) bool { return p.Flag == flag && !p.Resolved })
}

// sourceOf says where a value comes from that is not on the command line.
func sourceOf(ctx *kong.Context, flag *kong.Flag, config *configFile) string {
	if isTyped(ctx, flag) {
		return ""
	}
	if name := environmentOf(flag); name != "" {
		return " (from the environment variable " + name + ")"
	}
	if given, ok := config.values[flag.Name]; ok {
		return fmt.Sprintf(" (from %s:%d)", config.path, given.line)
	}
	return ""
}

// checkValue checks a parsed value by its type and by the tags `is` and `min`.
func checkValue(of *kong.Value, value any) error {
	switch v := value.(type) {
	case string:
		return checkText(of, v)
	case []string:
		if of.Tag.Get("is") == "origin" {
			return api.CheckOrigins(v) // one of them may be fit to stand alone
		}
		for _, one := range v {
			if err := checkText(of, one); err != nil {
				return err
			}
		}
	case int:
		least, _ := strconv.Atoi(of.Tag.Get("min")) // 0 without the tag
		if v < least {
			return fmt.Errorf("%d is too little: expected %d or more", v, least)
		}
	case float64:
		if !(v >= 0 && v <= 1) { // NaN neither
			return fmt.Errorf("%v is not a share: expected a number from 0 to 1", v)
		}
	case byteSize:
		var least byteSize
		if text := of.Tag.Get("min"); text != "" {
			if err := least.UnmarshalText([]byte(text)); err != nil {
				panic(err) // the tag is malformed
			}
		}
		if v < least {
			return fmt.Errorf("%s is too little: expected %s or more", v, least)
		}
	case time.Duration:
		return checkSpan(of, v)
	case *time.Duration:
		if v != nil {
			return checkSpan(of, *v)
		}
	}
	return nil
}

func checkSpan(of *kong.Value, span time.Duration) error {
	least, _ := time.ParseDuration(of.Tag.Get("min")) // 0 without the tag
	if span < least {
		return fmt.Errorf("%s is too short: expected %s or more", span, least)
	}
	return nil
}

// decodeSpan reads a time span as in "90s", "36h" or "30d".
func decodeSpan(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	span, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok && err != nil {
		var count int
		if count, err = strconv.Atoi(days); err == nil {
			span = time.Duration(min(count, daysMax)) * 24 * time.Hour
		}
	}
	if err != nil {
		return fmt.Errorf("%q is not a time span: expected a number and a unit, as in 90s, 36h or 30d", text)
	}
	target.SetInt(int64(span))
	return nil
}

// decodePath reads a path, and makes it absolute. The path "" stays what it is: a variable without
// a value does not stand for the working folder.
func decodePath(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("path", &text); err != nil {
		return err
	}
	if text != "" && text != "-" {
		text = kong.ExpandPath(text)
	}
	target.SetString(text)
	return nil
}

// daysMax is how many days a time span can hold, about.
const daysMax = 100_000

// decodeLevel reads the severity of log lines.
func decodeLevel(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("level", &text); err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(text)); err != nil {
		return fmt.Errorf("%q is not a level: expected debug, info, warn or error", text)
	}
	target.SetInt(int64(level))
	return nil
}

func checkText(of *kong.Value, text string) error {
	kind := of.Tag.Get("is")
	if text == "" && mustNotBeEmpty(kind) {
		return fmt.Errorf("it is empty: expected the path of a %s", kind[strings.LastIndexByte(kind, ' ')+1:])
	}
	check := valueKinds[kind]
	if check == nil {
		return nil
	}
	return check(text)
}

// mustNotBeEmpty reports whether the values of a kind are paths, of which "" is none: it would be
// taken for the working folder.
func mustNotBeEmpty(kind string) bool {
	return strings.HasSuffix(kind, "file") || strings.HasSuffix(kind, "folder") || kind == "audit log"
}

func checkAddress(value string) error {
	_, port, err := net.SplitHostPort(value)
	if err == nil {
		var number uint64
		if number, err = strconv.ParseUint(port, 10, 16); err == nil && number <= 65535 {
			return nil
		}
	}
	return fmt.Errorf("%q is not an address: expected HOST:PORT, as in 127.0.0.1:8080 or :8080", value)
}

func checkURL(value string) error {
	u, err := url.Parse(value)
	if err != nil { // which quotes it, perhaps with a password
		return errors.New("not a URL: expected one as in https://git.example.com")
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is not an http or https URL: expected one as in https://git.example.com", u.Redacted())
	}
	return nil
}

// checkFile leaves pipes and devices alone: who opens one takes something from it.
func checkFile(value string) error {
	info, err := os.Stat(value)
	if err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder: expected a file", value)
	}
	if err == nil && info.Mode().IsRegular() {
		var file *os.File
		if file, err = os.Open(value); err == nil {
			err = file.Close()
		}
	}
	if err != nil {
		return expected(err, "a file that this user can read")
	}
	return nil
}

// checkNewFile checks a file that one command makes if it is missing, and others need.
func checkNewFile(value string) error {
	if _, err := os.Stat(value); !errors.Is(err, fs.ErrNotExist) {
		return checkFile(value)
	}
	_, err := existing(filepath.Dir(value))
	return err
}

// checkAbsentFile checks a file that is made, and must not exist. Its folder must: a name with a
// mistake would hide the file.
func checkAbsentFile(value string) error {
	_, err := os.Lstat(value)
	switch {
	case err == nil:
		return fmt.Errorf("%s exists: expected a file that does not", value)
	case errors.Is(err, fs.ErrNotExist):
		return checkMayAdd(filepath.Dir(value))
	}
	return expected(err, "a file that does not exist")
}

// checkAbsentFolder checks a folder that is made, with those above it, and must not exist.
func checkAbsentFolder(value string) error {
	if _, err := os.Lstat(value); err == nil {
		return fmt.Errorf("%s exists: expected a folder that does not", value)
	}
	return checkNewFolder(value)
}

// checkMayAdd checks the folder of a file that is made.
func checkMayAdd(dir string) error {
	err := checkFolderExists(dir)
	if err == nil {
		err = checkRights(dir, toAddTo)
	}
	if err != nil {
		return expected(err, "a folder that this user can write to")
	}
	return nil
}

// checkFolderExists tells a folder from a file, whose rights say little.
func checkFolderExists(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}
	return err
}

// checkAuditLog checks where an audit log goes. Its file is made if it is missing, its folder is
// not: a name with a mistake would have the records hidden.
func checkAuditLog(value string) error {
	if value == audit.Stdout || value == audit.Syslog {
		return nil
	}
	file, err := audit.OpenFile(value, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return checkMayAdd(filepath.Dir(value))
	case err != nil:
		return expected(err, "a file that this user may append to, - or syslog")
	}
	return file.Close()
}

func checkFolder(value string) error {
	_, err := os.ReadDir(value)
	if err == nil {
		err = checkRights(value, toReadFolder)
	}
	if err != nil {
		return expected(err, "a folder that this user can read")
	}
	return nil
}

// checkOwnFolder checks a folder that must exist, and is changed.
func checkOwnFolder(value string) error {
	if err := checkFolder(value); err != nil {
		return err
	}
	if err := checkRights(value, toUseFolder); err != nil {
		return expected(err, "a folder that this user can write to")
	}
	return nil
}

// checkNewFolder checks a folder that is made if it is missing, and written to.
func checkNewFolder(value string) error {
	path, err := existing(value)
	if err != nil {
		return err
	}
	what := uint32(toAddTo)
	if path == filepath.Clean(value) {
		what = toUseFolder
	}
	if err := checkRights(path, what); err != nil {
		return expected(err, "a folder that this user can write to")
	}
	return nil
}

// checkAnyFolder checks a folder that some commands read, and others make.
func checkAnyFolder(value string) error {
	_, err := existing(value)
	return err
}

// existing returns the folder of a path that is there: that of the whole path, or the last above
// it.
func existing(value string) (string, error) {
	for path := filepath.Clean(value); ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		switch {
		case err == nil && info.IsDir():
			return path, nil
		case err == nil:
			return "", fmt.Errorf("%s is a file: expected a folder", path)
		case path == filepath.Dir(path):
			return "", err
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
			return "", expected(err, "a folder that this user can write to")
		}
	}
}

// checkEmptyFolder checks a folder that is made if it is missing, and must be empty otherwise.
func checkEmptyFolder(value string) error {
	entries, err := os.ReadDir(value)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return checkNewFolder(value)
	}
	if err != nil {
		return expected(err, "a folder that is empty or missing")
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty, it holds %s: expected a folder that is empty or missing", value,
			entries[0].Name())
	}
	return checkNewFolder(value)
}

func checkBucket(value string) error {
	_, err := s3.ParseLocation(value)
	return err
}

func checkNetwork(value string) error {
	_, err := parseNetworks([]string{value})
	return err
}

func checkReachable(value string) error {
	if _, err := outbound.ParseGuard([]string{value}); err != nil {
		return fmt.Errorf("%q is not a host: expected a host name, an IP address or a network as in 10.1.0.0/16", value)
	}
	return nil
}

func checkNumber(value string) error {
	if n, err := strconv.ParseUint(value, 10, 63); err != nil || n == 0 {
		return fmt.Errorf("%q is not a number: expected one as in 12345", value)
	}
	return nil
}

func checkName(value string) error {
	if !auth.ValidName(value) {
		return fmt.Errorf("%q is no name: expected 1 to 100 of A-Z a-z 0-9 . _ -", value)
	}
	return nil
}

func checkRepository(value string) error {
	if err := refs.CheckRepositoryName(value); err != nil {
		return fmt.Errorf("%q is not the name of a repository: %s", value, refs.RepositoryNames)
	}
	return nil
}

// checkTokenRepository checks the repository of a token, which may also be for the organization.
func checkTokenRepository(value string) error {
	if value == "" || value == rest.OrgClaim {
		return nil
	}
	return checkRepository(value)
}

// What the policies of tokens refuse.
var (
	refOps  = []string{string(refs.NoPush), string(refs.NoForcePush), string(refs.VerifySig)}
	pathOps = []string{"no-write"}
)

func checkOp(value string) error {
	if !slices.Contains(refOps, value) {
		return fmt.Errorf("%q is no operation: expected %s", value, strings.Join(refOps, ", "))
	}
	return nil
}

func checkPolicy(value string, known []string) error {
	split := strings.LastIndexByte(value, '=') // a name may hold one too
	if split < 1 {
		return fmt.Errorf("%q is not PATTERN=OP,OP: expected one as in %s=%s", value, "release", known[0])
	}
	for op := range strings.SplitSeq(value[split+1:], ",") {
		if op != "" && !slices.Contains(known, op) {
			return fmt.Errorf("%q is no operation: expected %s", op, strings.Join(known, ", "))
		}
	}
	return nil
}
