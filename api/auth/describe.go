package auth

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"packhorse/engine/organization"
)

// Fact is something that holds of an organization: a key, or a setting that is not the default.
type Fact struct {
	Name  string // such as "key 2026" or "limits.repositories"
	Value string // for people; nothing in it is secret

	hidden string // of a secret: changes with it
}

// IsKey reports whether the fact is a key, rather than a setting.
func (f *Fact) IsKey() bool { return strings.HasPrefix(f.Name, keyFact) }

// keyFact is what the name of a key begins with.
const keyFact = "key "

// Describe returns the facts of the files of an organization, in the order of their names, keys
// first. What cannot be understood is a fact, too.
func Describe(files organization.Files) []Fact {
	var facts []Fact
	for _, name := range slices.Sorted(maps.Keys(files)) {
		id, isKey := strings.CutSuffix(name, keyExtension)
		if !isKey {
			continue
		}
		fact := Fact{Name: keyFact + id, Value: "not understood"}
		if key, err := newKey(id, files[name]); err == nil {
			fact.Value = strings.Join(key.algs, ",") + " " + key.fingerprint
		}
		facts = append(facts, fact)
	}
	data, found := files[configName]
	if !found {
		return facts
	}
	config, err := ParseOrgConfig(data)
	if err != nil {
		return append(facts, Fact{Name: configName, Value: "not understood", hidden: digest(data)})
	}
	settings := config.facts()
	for _, name := range config.SigningKeys {
		settings = append(settings, Fact{Name: "signing key " + name, Value: "SHA-256 " + digest(files[name])[:16]})
	}
	slices.SortStableFunc(settings, func(a, b Fact) int { return cmp.Compare(a.Name, b.Name) })
	return append(facts, settings...)
}

// facts are the settings but for the signing keys.
func (c *OrgConfig) facts() []Fact {
	var facts []Fact
	add := func(name, value string, isDefault bool) {
		if !isDefault {
			facts = append(facts, Fact{Name: name, Value: value})
		}
	}
	for _, hook := range c.Webhooks { // URLs of receivers often have a secret in their path
		facts = append(facts, Fact{
			Name:  "webhook " + hostOf(hook.URL) + " " + digest([]byte(hook.URL))[:8],
			Value: cmp.Or(strings.Join(hook.Events, ","), "all events"), hidden: digest([]byte(hook.Secret)),
		})
	}
	for _, provider := range slices.Sorted(maps.Keys(c.Upstreams)) {
		facts = append(facts, Fact{
			Name: "upstreams." + provider, Value: hostOf(c.Upstreams[provider]), hidden: digest([]byte(c.Upstreams[provider])),
		})
	}
	add("github_owners", strings.Join(c.GitHubOwners, ","), len(c.GitHubOwners) == 0)
	add("custom_notes_refs", strconv.FormatBool(c.CustomNotesRefs), c.CustomNotesRefs)
	add("create_on_push", strconv.FormatBool(c.CreateOnPush), !c.CreateOnPush)
	if c.KeepHistory != nil {
		add("keep_history", time.Duration(*c.KeepHistory).String(), false)
	}
	limits := c.Limits
	add("limits.heavy_slots", strconv.Itoa(limits.HeavySlots), limits.HeavySlots == 0)
	add("limits.repositories", strconv.Itoa(limits.Repositories), limits.Repositories == 0)
	add("limits.quota_bytes", fmt.Sprint(limits.QuotaBytes), limits.QuotaBytes == 0)
	add("limits.repository_quota_bytes", fmt.Sprint(limits.RepositoryQuotaBytes), limits.RepositoryQuotaBytes == 0)
	add("limits.requests_per_second", fmt.Sprint(limits.RequestsPerSecond), limits.RequestsPerSecond == 0)
	add("limits.request_burst", fmt.Sprint(limits.RequestBurst), limits.RequestBurst == 0)
	return facts
}

func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "(not a URL)"
	}
	return u.Host
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Differences says in a line each what is another fact now, nothing of it secret.
func Differences(before, now []Fact) []string {
	var lines []string
	for _, fact := range now {
		i := slices.IndexFunc(before, func(b Fact) bool { return b.Name == fact.Name })
		switch {
		case i < 0:
			lines = append(lines, fmt.Sprintf("%s added: %s", fact.Name, fact.Value))
		case before[i].Value != fact.Value:
			lines = append(lines, fmt.Sprintf("%s changed: %s, before %s", fact.Name, fact.Value, before[i].Value))
		case before[i].hidden != fact.hidden:
			lines = append(lines, fmt.Sprintf("%s changed: a secret in it", fact.Name))
		}
	}
	for _, fact := range before {
		if !slices.ContainsFunc(now, func(n Fact) bool { return n.Name == fact.Name }) {
			lines = append(lines, fmt.Sprintf("%s removed: it was %s", fact.Name, fact.Value))
		}
	}
	return lines
}
