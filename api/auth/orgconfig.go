package auth

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"packhorse/odb/space"
)

// ErrOrgConfig says that an org.yaml is invalid.
var ErrOrgConfig = errors.New("auth: bad organization configuration")

// OrgConfig is ORGSDIR/<org>/org.yaml. It is shared: read only.
type OrgConfig struct {
	Webhooks []Webhook `yaml:"webhooks"`
	// SigningKeys names files in the organization's folder: OpenPGP or SSH public keys that verify-sig
	// accepts.
	SigningKeys []string `yaml:"signing_keys"`
	// Upstreams is the base URL of each generic provider.
	Upstreams map[string]string `yaml:"upstreams"`
	// GitHubOwners are the accounts on GitHub whose repositories the organization may reach through
	// the server's GitHub App; "*" are all that have installed it. By default there are none: the app
	// may have access to accounts of other organizations.
	GitHubOwners    []string `yaml:"github_owners"`
	CustomNotesRefs bool     `yaml:"custom_notes_refs"` // true unless switched off
	// CreateOnPush lets a push create the repository that it names, if the token may create it.
	CreateOnPush bool      `yaml:"create_on_push"`
	Limits       OrgLimits `yaml:"limits"`
	// KeepHistory is for how long the repositories can be read as they were; nil means the server's
	// default.
	KeepHistory *Age `yaml:"keep_history"`

	// Unread says that there is an org.yaml that could not be understood, and no earlier one in force.
	Unread bool `yaml:"-"`
	// SigningKeyData are the contents of the files of SigningKeys, in that order; nil for an
	// unreadable one, which is logged.
	SigningKeyData [][]byte `yaml:"-"`
}

// Webhook is a receiver of an organization's events. Its URL identifies it.
type Webhook struct {
	URL    string   `yaml:"url"`
	Secret string   `yaml:"secret"`
	Events []string `yaml:"events"` // "push", the only kind; all kinds when there are none
}

// OrgLimits bounds one organization. Zero means the server's default, and for requests that they
// are not counted.
type OrgLimits struct {
	HeavySlots           int   `yaml:"heavy_slots"`            // concurrent heavy computations
	Repositories         int   `yaml:"repositories"`           // number of repositories
	QuotaBytes           Bytes `yaml:"quota_bytes"`            // that all repositories store together
	RepositoryQuotaBytes Bytes `yaml:"repository_quota_bytes"` // that each repository stores
	RequestsPerSecond    Rate  `yaml:"requests_per_second"`    // that one server takes, on average
	RequestBurst         Burst `yaml:"request_burst"`          // and at once; see [OrgLimits.Burst]
}

// The bounds of rates and bursts.
const (
	rateMin  = 0.001
	rateMax  = 1_000_000
	burstMax = 1_000_000

	// burstLeast and burstSeconds are the burst of an organization that sets none: so many requests,
	// or those of so many seconds if that is more.
	burstLeast   = 10
	burstSeconds = 2
)

// Burst returns how many requests are taken at once from an organization with a rate.
func (l OrgLimits) Burst() int {
	if l.RequestBurst > 0 {
		return int(l.RequestBurst)
	}
	return max(burstLeast, int(math.Ceil(burstSeconds*float64(l.RequestsPerSecond))))
}

// check refuses what makes no sense, by the names of the keys.
func (l OrgLimits) check() error {
	switch {
	case l.HeavySlots < 0 || l.Repositories < 0:
		return errors.New("limits: want no negative number")
	case l.RequestsPerSecond < 0:
		return fmt.Errorf("limits.requests_per_second: want a number from %g to %d, such as 50 or 0.5", rateMin, rateMax)
	case l.RequestBurst < 0:
		return fmt.Errorf("limits.request_burst: want a whole number from 1 to %d", burstMax)
	case l.RequestBurst > 0 && l.RequestsPerSecond == 0:
		return errors.New("limits.request_burst: want limits.requests_per_second beside it")
	}
	return nil
}

// Rate is a number a second, above 0. It is below 0 for a text that is no rate: the decoder does
// not say which key has it, and [OrgLimits] does.
type Rate float64

// UnmarshalText implements [encoding.TextUnmarshaler].
func (r *Rate) UnmarshalText(text []byte) error {
	*r = -1
	if n, err := strconv.ParseFloat(string(text), 64); err == nil && n >= rateMin && n <= rateMax {
		*r = Rate(n)
	}
	return nil
}

// Burst is a number of requests, above 0. It is below 0 for a text that is none, as a [Rate] is.
type Burst int

// UnmarshalText implements [encoding.TextUnmarshaler].
func (b *Burst) UnmarshalText(text []byte) error {
	*b = -1
	if n, err := strconv.Atoi(string(text)); err == nil && n >= 1 && n <= burstMax {
		*b = Burst(n)
	}
	return nil
}

// Bytes is a size, written as in "10GiB" or "10737418240".
type Bytes int64

// UnmarshalText implements [encoding.TextUnmarshaler].
func (b *Bytes) UnmarshalText(text []byte) error {
	n, err := space.ParseSize(string(text))
	*b = Bytes(n)
	return err
}

// Age is a time span, written as in "36h" or "90d".
type Age time.Duration

// UnmarshalText implements [encoding.TextUnmarshaler].
func (a *Age) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if days, ok := strings.CutSuffix(string(text), "d"); ok {
		var count int
		count, err = strconv.Atoi(days)
		d = time.Duration(min(count, daysMax)) * 24 * time.Hour
	}
	if err != nil || d < 0 {
		return fmt.Errorf("want a time span such as 36h or 90d, got %.40q", text)
	}
	*a = Age(d)
	return nil
}

// daysMax is how many days a duration can hold, about.
const daysMax = 100_000

// defaultOrgConfig is the configuration of an organization without org.yaml.
func defaultOrgConfig() *OrgConfig { return &OrgConfig{CustomNotesRefs: true} }

// unreadOrgConfig is the configuration of an organization whose org.yaml was never understood.
func unreadOrgConfig() *OrgConfig {
	config := defaultOrgConfig()
	config.Unread = true
	return config
}

// ParseOrgConfig reads an org.yaml. Unknown fields are refused, so that a misspelt one is noticed.
// Errors: [ErrOrgConfig].
func ParseOrgConfig(data []byte) (*OrgConfig, error) {
	config := defaultOrgConfig()
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(config); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: %s", ErrOrgConfig, inPlainWords(err))
	}
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOrgConfig, err)
	}
	return config, nil
}

var (
	yamlPlace  = regexp.MustCompile(`^(?:yaml: )?(line \d+: )?`)
	unknownKey = regexp.MustCompile(`^field (.*) not found in type auth\.(\w+)$`)
	wrongType  = regexp.MustCompile(`(?s)^cannot unmarshal .* into (\S+)$`)
	keysOf     = map[string][]string{
		"OrgConfig": yamlKeys[OrgConfig](), "Webhook": yamlKeys[Webhook](), "OrgLimits": yamlKeys[OrgLimits](),
	}
)

// inPlainWords says what is wrong with an org.yaml, a clause with the line for each fault. It
// quotes no value, which may be a secret in the wrong place.
func inPlainWords(err error) string {
	faults, prefix := []string{err.Error()}, "not YAML: "
	if typed, ok := errors.AsType[*yaml.TypeError](err); ok {
		faults, prefix = typed.Errors, ""
	} else if !strings.HasPrefix(err.Error(), "yaml: ") {
		prefix = "" // of a size or a time span
	}
	for i, fault := range faults {
		place := yamlPlace.FindStringSubmatch(fault)
		what := fault[len(place[0]):]
		if unknown := unknownKey.FindStringSubmatch(what); unknown != nil {
			what = fmt.Sprintf("unknown key %q: the keys there are %s", unknown[1], strings.Join(keysOf[unknown[2]], ", "))
		} else if wrong := wrongType.FindStringSubmatch(what); wrong != nil {
			what = "expected " + expectedAs(wrong[1])
		}
		faults[i] = place[1] + prefix + what
	}
	return strings.Join(faults, "; ")
}

// expectedAs names what a file has to say where a value becomes a Go type.
func expectedAs(goType string) string {
	switch {
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case goType == "bool":
		return "true or false"
	case goType == "int":
		return "a number"
	case goType == "string":
		return "a text"
	}
	keys := keysOf[strings.TrimPrefix(goType, "auth.")]
	if keys == nil {
		return "lines of the form KEY: VALUE"
	}
	return "lines of the form KEY: VALUE, with the keys " + strings.Join(keys, ", ")
}

// yamlKeys returns the keys that a file has for a struct.
func yamlKeys[T any]() (keys []string) {
	for field := range reflect.TypeFor[T]().Fields() {
		if key := field.Tag.Get("yaml"); key != "-" {
			keys = append(keys, key)
		}
	}
	return keys
}

func (c *OrgConfig) check() error {
	urls := make(map[string]bool)
	for i, hook := range c.Webhooks { // what is wrong may be a secret in the wrong place: none is quoted
		number := i + 1
		if urls[hook.URL] {
			return fmt.Errorf("webhooks: the url of number %d is listed twice", number)
		}
		urls[hook.URL] = true
		if !isHTTPURL(hook.URL) {
			return fmt.Errorf("webhooks: number %d: want an http or https URL as its url", number)
		}
		if hook.Secret == "" {
			return fmt.Errorf("webhooks: number %d has no secret", number)
		}
		for _, event := range hook.Events {
			if event != "push" {
				return fmt.Errorf("webhooks: number %d: unknown event %q, want push", number, event)
			}
		}
	}
	for provider, base := range c.Upstreams {
		if !isHTTPURL(base) {
			return fmt.Errorf("upstreams: %s: want an http or https URL", provider)
		}
	}
	for _, name := range c.SigningKeys {
		if filepath.Base(name) != name || !filepath.IsLocal(name) {
			return fmt.Errorf("signing_keys: %q is not the name of a file in the organization's folder", name)
		}
	}
	return c.Limits.check()
}

func isHTTPURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
}
