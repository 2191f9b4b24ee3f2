package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"text/tabwriter"
	"time"

	"packhorse/engine"
	"packhorse/odb/space"
)

// statusCommand shows how a server is doing.
type statusCommand struct {
	Data string        `help:"Data folder of the server." placeholder:"DIR" required:"" type:"path" is:"folder"`
	Wait time.Duration `help:"How long to wait for a server that does not answer." default:"30s" min:"1ms"`
	JSON bool          `help:"Print a JSON object." name:"json"`
}

// serverStatus is how a server is doing. What it does not have is left out.
type serverStatus struct {
	Version   string    `json:"version"`
	Go        string    `json:"go"`
	PID       int       `json:"pid"`
	URL       string    `json:"url"`
	Began     time.Time `json:"began"`
	Ready     bool      `json:"ready"`
	Readiness string    `json:"readiness"` // the answer of /readyz

	Repositories        int `json:"repositories"`
	DeletedRepositories int `json:"deleted_repositories"`
	Organizations       int `json:"organizations"`
	DamageCount         int `json:"damage_count"`

	DiskFreeBytes  uint64 `json:"disk_free_bytes"`
	DiskTotalBytes uint64 `json:"disk_total_bytes"`
	WritesRefused  string `json:"writes_refused,omitempty"` // why
	MemoryBytes    uint64 `json:"memory_bytes"`
	MemoryLimit    int64  `json:"memory_limit_bytes"`

	Maintenance maintenanceStatus `json:"maintenance"`
	Syncs       syncsStatus       `json:"syncs"`
	Webhooks    webhooksStatus    `json:"webhooks"`

	// LastBackup and LastCheck are by this process, since Began.
	LastBackup time.Time `json:"last_backup,omitzero"`
	LastCheck  time.Time `json:"last_check,omitzero"`

	CertificateEnds time.Time `json:"certificate_ends,omitzero"`
	AuditLost       uint64    `json:"audit_records_lost,omitempty"`
	Duties          []string  `json:"duties,omitempty"` // of a server that shares its stores
}

type maintenanceStatus struct {
	Off       bool   `json:"off,omitempty"`
	Due       int    `json:"due"` // pools that wait
	Rounds    uint64 `json:"rounds"`
	Failures  uint64 `json:"failures"`
	Postponed uint64 `json:"postponed"`
}

type syncsStatus struct {
	Running  int    `json:"running"`
	Waiting  int    `json:"waiting"`
	Done     uint64 `json:"done"`
	Failures uint64 `json:"failures"`
}

type webhooksStatus struct {
	Pending  int64  `json:"pending"`
	Done     uint64 `json:"delivered"`
	Failures uint64 `json:"failures"`
	Dead     uint64 `json:"dead"`
}

// statusTask is the name of the task, which only a server has.
const statusTask = "status"

// tasks returns those of every data folder, and the one that a server tells of itself.
func (s *server) tasks() map[string]task {
	all := maps.Clone(tasks)
	maps.Copy(all, reposTasks(s.tokens.OrgConfig))
	all[statusTask] = taskOf(func(ctx context.Context, _ *engine.Host, _ struct{}, out io.Writer) error {
		now, err := s.status(ctx)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(now)
	})
	return all
}

// status returns how the server is doing. Errors: those of the stores.
func (s *server) status(ctx context.Context) (serverStatus, error) {
	now := serverStatus{
		Version: version, Go: runtime.Version(), PID: os.Getpid(), URL: s.url, Began: s.begun.UTC(),
		Organizations: len(s.tokens.Orgs()), DamageCount: s.store.damageCount(),
		DiskFreeBytes: s.store.space.Free(), DiskTotalBytes: s.store.space.Total(),
		MemoryBytes: memoryInUse(), MemoryLimit: int64(s.flags.Memory),
	}
	now.Ready, now.Readiness = s.api.Readiness()
	if err := s.store.space.Check(); err != nil {
		now.WritesRefused = strings.TrimPrefix(err.Error(), "space: ")
	}
	var err error
	if now.Repositories, now.DeletedRepositories, _, err = s.store.host.CountRepositories(ctx); err != nil {
		return serverStatus{}, err
	}
	care := s.store.host.MaintenanceStats()
	now.Maintenance = maintenanceStatus{s.flags.Maintenance.Off, care.DueCount, care.Rounds, care.Failures, care.Postponed}
	syncs := s.store.host.UpstreamStats()
	now.Syncs = syncsStatus{syncs.Running, syncs.Waiting, syncs.Syncs, syncs.Failures}
	hooks := s.store.host.Webhooks().Stats()
	now.Webhooks = webhooksStatus{hooks.Pending, hooks.Delivered, hooks.Failed, hooks.Dead}
	now.LastBackup, now.LastCheck = s.store.host.LastBackup().UTC(), s.store.host.LastCheck().UTC()
	if s.certificates != nil {
		now.CertificateEnds = s.certificates.current.Load().Leaf.NotAfter.UTC()
	}
	if s.audit != nil {
		now.AuditLost = s.audit.Failures()
	}
	if member := s.store.host.Member(); member != nil {
		now.Duties = append([]string{}, member.Held()...)
	}
	return now, nil
}

// memoryInUse is the memory that the runtime has of the operating system, in bytes.
func memoryInUse() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}

// errNotReady says that a server should get no requests.
var errNotReady = errors.New("the server is not ready")

// Run prints what the server tells. It fails unless that is ready.
func (c statusCommand) Run(ctx context.Context, to streams) error {
	watch := &vigil{
		what: "the server that has " + c.Data + " open", say: sayAfter, limit: c.Wait,
		tell: func(line string) { to.complain("%s", line) },
	}
	var answer string
	err := askAdmin(ctx, filepath.Join(c.Data, adminSocket), statusTask, []byte("{}"), watch, func(line string) error {
		answer = line
		return nil
	})
	if errors.Is(err, errNoServer) {
		return fmt.Errorf("no server has %s open, or it is starting: %w", c.Data, err)
	}
	if err != nil {
		return err
	}
	var told serverStatus
	if err := json.Unmarshal([]byte(answer), &told); err != nil {
		return fmt.Errorf("the answer of the server: %w", err)
	}
	if c.JSON {
		err = to.printf("%s\n", answer)
	} else {
		err = to.printf("%s", told.text(time.Now()))
	}
	if err == nil && !told.Ready {
		err = errNotReady
	}
	return err
}

// text is a screen for people, as of now.
func (s *serverStatus) text(now time.Time) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(name, format string, values ...any) {
		_, _ = fmt.Fprintf(table, name+":\t"+format+"\n", values...) // to a Builder
	}
	row("server", "packhorse %s (%s), %s, process %d", s.Version, s.Go, s.URL, s.PID)
	row("up since", "%s", moment(s.Began, now))
	row("ready", "%s", s.Readiness)
	row("repositories", "%d, of %s; %d deleted can be brought back", s.Repositories,
		quantity(s.Organizations, "organization"), s.DeletedRepositories)
	if s.DamageCount > 0 {
		row("damage", "%s; packhorse fsck lists them", quantity(s.DamageCount, "damaged thing"))
	}
	if s.DiskFreeBytes == math.MaxUint64 {
		row("disk", "the file system does not report its free space")
	} else {
		row("disk", "%s free of %s", space.Size(s.DiskFreeBytes), space.Size(s.DiskTotalBytes))
	}
	if s.WritesRefused != "" {
		row("writes", "%s", s.WritesRefused)
	}
	row("memory", "%s of %s", space.Size(s.MemoryBytes), space.Size(uint64(s.MemoryLimit)))
	if m := s.Maintenance; m.Off {
		row("maintenance", "off")
	} else {
		row("maintenance", "%s due; %s, %d failed, %d postponed", quantity(m.Due, "pool"), quantity(m.Rounds, "round"),
			m.Failures, m.Postponed)
	}
	row("syncs", "%d running, %d waiting; %d done, %d failed", s.Syncs.Running, s.Syncs.Waiting, s.Syncs.Done, s.Syncs.Failures)
	row("webhooks", "%d pending; %d delivered, %d failed, %d dead", s.Webhooks.Pending, s.Webhooks.Done,
		s.Webhooks.Failures, s.Webhooks.Dead)
	row("last backup", "%s", sinceStart(s.LastBackup, now))
	row("last check", "%s", sinceStart(s.LastCheck, now))
	if !s.CertificateEnds.IsZero() {
		row("certificate", "ends %s", moment(s.CertificateEnds, now))
	}
	if s.AuditLost > 0 {
		row("audit log", "%s lost", quantity(s.AuditLost, "record"))
	}
	if s.Duties != nil {
		row("duties", "%s", orDash(strings.Join(s.Duties, ", ")))
	}
	_ = table.Flush() // to a Builder
	return text.String()
}

// sinceStart is a moment that a server knows if it came after its start.
func sinceStart(at, now time.Time) string {
	if at.IsZero() {
		return "none since the start"
	}
	return moment(at, now)
}
