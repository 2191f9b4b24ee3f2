package main_test

import (
	"cmp"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"packhorse/cmd/packhorse/packhorsetest"
	"packhorse/fuzz/loopback"
	"packhorse/odb/file/s3/s3test"
	"packhorse/odb/kv/postgres/postgrestest"
)

// story are sections of a page that one machine goes through: their commands run in order, in one
// shell and one folder.
type story struct {
	page     string   // below the root of the repository
	sections []string // their headings, "" for what stands before the first
	programs []string // beside bash and curl
	// stage makes what the sections take for granted, and says what stands for their names.
	stage func(m *machine)
	// before has commands of the shell that run before one of the page: what came to pass meanwhile.
	before map[string]string
}

// notRun are the commands that no test can run as they are, with the reason, and with what the
// shell runs in their place.
var notRun = []struct{ page, command, why, instead string }{
	{"docs/operations.md", "dpkg -i packhorse_1.2.3_amd64.deb", "needs a release and root: see TestDebianPackage", "unpack"},
	{"docs/operations.md", "systemctl enable packhorse", "needs systemd: see TestUnit", ""},
	{"docs/operations.md", "systemctl start packhorse", "needs systemd", "start"},
	{"docs/operations.md", "packhorse import --github-token-file token github:acme", "needs GitHub: see TestImportHosts", ""},
	{"docs/servers.md", "systemctl start packhorse", "needs systemd", "start"},
	{"docs/servers.md", "systemctl stop packhorse", "needs systemd", "stop"},
	{
		"docs/servers.md", "packhorse cluster --config /etc/packhorse/config.yaml", "hears too late of a server on a slow machine",
		"until packhorse cluster --config etc/packhorse/config.yaml >seen && [ $(grep -c ' live ' seen) = 2 ]; do :; done; cat seen",
	},
	{"docs/deployment.md", "docker compose up -d", "needs docker: see TestCompose", "start"},
	{"docs/deployment.md", "docker compose up -d balancer orgs", "needs docker: see TestCompose", ""},
	{"docs/deployment.md", "docker compose exec one packhorse cluster", "needs docker: see TestCompose", ""},
	{"docs/deployment.md", "docker compose up orgs            # after a change in orgs/", "needs docker: see TestCompose", ""},
}

// stories has every command of the documents, but for the pages that have tests of their own:
// TestQuickstart, TestDrills and TestAPIDocument.
func stories() []story {
	return []story{
		{page: "README.md", sections: []string{"Try it"}, programs: []string{"git"}, stage: (*machine).dev},
		{
			page: "docs/operations.md", programs: []string{"openssl", "git"}, stage: (*machine).withCertificate,
			sections: []string{
				"Install and start", "Organizations", "Check before a start", "`packhorse token inspect`",
				"`packhorse credential`", "`packhorse status`", "Moving in and out", "All repositories",
			},
			before: map[string]string{
				"packhorse config check --config /etc/packhorse/config.yaml": faultyConfig,
				"packhorse status --data /var/lib/packhorse": `
packhorse backup --data /var/lib/packhorse /mnt/backups
packhorse fsck --data /var/lib/packhorse`,
				"packhorse import --dry-run --prefix mirror /srv/git": `
git init -q --bare /srv/git/web/site.git
history /srv/git/web/site.git`,
				"packhorse repos list --data /var/lib/packhorse": `
packhorse repos rename web/home web/site --data /var/lib/packhorse --org acme`,
			},
		},
		{page: "docs/operations.md", sections: []string{"Packages and systemd"}, stage: (*machine).packaged},
		{page: "docs/backup.md", sections: []string{""}, programs: []string{"git"}, stage: func(m *machine) {
			m.serve("")
			m.site()
		}},
		{
			page: "docs/backup.md", sections: []string{"A database and a bucket"}, programs: []string{"git"},
			stage: (*machine).overStores,
		},
		{page: "docs/monitoring.md", sections: []string{"Audit log"}, programs: []string{"git", "sha256sum"}, stage: func(m *machine) {
			m.sh.must(m.t, m.stands("mkdir -p /var/log/packhorse"))
			m.serve("audit: /var/log/packhorse/audit.jsonl\n")
			m.site()
		}},
		{
			page: "docs/webhooks.md", sections: []string{"Operate"}, programs: []string{"git"}, stage: (*machine).withReceiver,
			before: map[string]string{
				"packhorse webhooks list --data /var/lib/packhorse --dead": `
until packhorse webhooks list --data /var/lib/packhorse | grep -q ' 1 dead'; do sleep 0.05; done`,
			},
		},
		{
			page: "docs/upstreams.md", programs: []string{"git"}, stage: (*machine).withUpstream,
			sections: []string{"Create a repository with an upstream"},
			before: map[string]string{
				`curl -sS -H "Authorization: Bearer $TOKEN" $PACKHORSE/api/v1/repo`: `
until curl -sS -H "Authorization: Bearer $TOKEN" $PACKHORSE/api/v1/repo | grep '"state":"synced"'; do sleep 0.05; done`,
			},
		},
		{
			page: "docs/servers.md", programs: []string{"psql"}, stage: (*machine).twoServers,
			sections: []string{"Start two servers", "Organizations of several servers", "Servers and their duties"},
			before: map[string]string{
				"systemctl start packhorse": startOther,
				"packhorse org apply orgs --keys postgres://packhorse@db.example.com/packhorse": changedOrgs,
			},
		},
		{page: "docs/servers.md", sections: []string{"Move to several servers and back"}, programs: []string{"git"}, stage: (*machine).moving},
		{page: "docs/deployment.md", sections: []string{"Compose"}, stage: func(m *machine) {
			m.listen("127.0.0.1:8080")
			m.write("/etc/packhorse/config.yaml", "data: /var/lib/packhorse\nlisten: 127.0.0.1:8080\norgs: "+m.sh.dir+"/orgs\n")
		}},
	}
}

// TestPages runs the commands of the documents, and compares what they print with what the page
// shows behind them; where it shows nothing, they only have to succeed. Ids, times, ages, sizes,
// and counts of files, bytes, objects, rows and refs differ; an id of the page stands for the same
// thing everywhere, and "…" for anything. Paths, addresses and hosts of the page are replaced by
// such as a test has.
func TestPages(t *testing.T) {
	t.Parallel()
	all := stories()
	tellAll(t, all)
	for _, s := range all {
		t.Run(strings.TrimSuffix(filepath.Base(s.page), ".md"), func(t *testing.T) {
			t.Parallel()
			s.run(t)
		})
	}
}

// tellAll fails the test unless each command of the documents is in one story, and each one of
// notRun in its page.
func tellAll(t *testing.T, all []story) {
	t.Helper()
	pages := []string{"README.md"}
	err := filepath.WalkDir("../../docs", func(path string, _ fs.DirEntry, err error) error {
		name, relErr := filepath.Rel("../..", path)
		if err != nil || relErr != nil {
			return cmp.Or(err, relErr)
		}
		own := strings.Contains(name, "quickstart") || name == "docs/drills.md" || name == "docs/api.md"
		if filepath.Ext(name) == ".md" && !own {
			pages = append(pages, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	shown := make(map[[2]string]bool) // by page and command
	for _, name := range pages {
		for _, block := range readExamples(t, "../../"+name).blocks {
			if block.kind != "console" && block.kind != "sh" {
				continue
			}
			count := 0
			for _, s := range all {
				if s.page == name && slices.Contains(s.sections, block.section) {
					count++
				}
			}
			if count != 1 {
				t.Errorf("%s:%d: the commands of %q are in %d stories, not in one", name, block.line, block.section, count)
			}
			for _, one := range block.typed() {
				shown[[2]string{name, strings.TrimSpace(one.text)}] = true
			}
		}
	}
	for _, row := range notRun {
		if !shown[[2]string{row.page, row.command}] {
			t.Errorf("%s does not have the command %q, which %s", row.page, row.command, row.why)
		}
	}
}

func (s *story) run(t *testing.T) {
	t.Helper()
	for _, program := range append(s.programs, "bash", "curl") {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: %s is not installed", program)
		}
	}
	m := newMachine(t)
	s.stage(m)
	page := readExamples(t, "../../"+s.page)
	said := &sayings{ids: make(map[string]string), amounts: true}
	before := make(map[string]bool)
	for _, block := range page.blocks {
		if !slices.Contains(s.sections, block.section) {
			continue
		}
		commands := block.typed()
		switch {
		case block.file != "":
			m.write(block.file, block.text)
			continue
		case block.kind == "sh":
			commands = []exampleBlock{block}
		}
		for _, one := range commands {
			command := strings.TrimSpace(one.text)
			if first, ok := s.before[command]; ok {
				before[command] = true
				m.sh.must(t, m.stands(first))
			}
			for _, row := range notRun {
				if row.page == s.page && row.command == command {
					t.Logf("%s:%d: %q %s: %q in its place", s.page, one.line, command, row.why, row.instead)
					one.text = row.instead
				}
			}
			one.text, one.answer = m.stands(one.text), m.stands(one.answer)
			page.runBlock(t, m.sh, said, one)
		}
	}
	for command := range s.before {
		if !before[command] {
			t.Errorf("%s does not have the command %q", s.page, command)
		}
	}
}

// machine is where a story happens: a shell in a folder that is the root of the paths of a page.
type machine struct {
	t     *testing.T
	sh    *pageShell
	names []string // of the page, each followed by what stands for it
}

// machinePaths are the beginnings of absolute paths in the documents.
var machinePaths = []string{"/etc/packhorse", "/var/lib/", "/var/log/", "/mnt/", "/srv/"}

// newMachine starts a shell. In it "packhorse serve" returns when the server is ready, start and
// stop are what the unit does, and history pushes some commits to a URL.
func newMachine(t *testing.T) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{t: t, sh: startGroupShell(t, dir)}
	for _, path := range machinePaths {
		m.names = append(m.names, path, dir+path)
		if err := os.MkdirAll(dir+path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	version := strings.Fields(packhorse(t, nil, "version").out)[1]
	m.names = append(m.names, "packhorse 1.2.3 (go1.26.8)", "packhorse "+version+" ("+runtime.Version()+")",
		"1a2b3c4d5e6f", version)
	unit, err := os.ReadFile("../../docs/deploy/packhorse.service")
	if err != nil {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(string(unit), "\nExecStart=/usr/bin/")
	command, _, _ = strings.Cut(command, "\n")
	m.sh.must(t, "PATH="+filepath.Dir(bin)+":$PATH", "export PACKHORSE_MIN_FREE=1MiB", m.stands(`
packhorse() {
	if [ "$1" != serve ]; then command packhorse "$@"; return; fi
	: >address
	command packhorse "$@" >address 2>>server.log &
	SERVER=$!
	until [ -s address ]; do
		kill -0 $SERVER || { cat server.log; return 1; }
		sleep 0.02
	done
}
start() {
	local line
	while IFS= read -r line; do
		[ "${line#\#}" != "$line" ] || export "$line"
	done < <(cat /etc/packhorse/environment 2>/dev/null)
	`+command+`
}
stop() { kill $SERVER && wait $SERVER; }
history() {
	git init -q history &&
	git -C history -c user.name=A -c user.email=a@example.com commit -q --allow-empty -m First &&
	git -C history push -q "$1" HEAD:refs/heads/main
}
`))
	return m
}

// stands returns a text of the page with what stands for its names.
func (m *machine) stands(text string) string { return strings.NewReplacer(m.names...).Replace(text) }

// write saves a file of the page.
func (m *machine) write(path, text string) {
	m.t.Helper()
	if path = m.stands(path); !filepath.IsAbs(path) {
		path = filepath.Join(m.sh.dir, path)
	}
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(m.stands(text)), 0o600)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// listen has a free port stand for an address of the page.
func (m *machine) listen(address string) string {
	m.t.Helper()
	free := loopback.FreeAddress(m.t)
	m.names = append(m.names, address, free)
	return free
}

// dev is a server for trying things out, in the folder of a repository of git.
func (m *machine) dev() {
	lines, _, _ := strings.Cut(dev(m.t, filepath.Join(m.sh.dir, "packhorse-data")), "\n\n")
	found := regexp.MustCompile(`PACKHORSE=http://(\S+)\n(?:.*\n)*?export TOKEN=(\S+)`).FindStringSubmatch(lines)
	if found == nil {
		m.t.Fatalf("no server in %q", lines)
	}
	m.names = append(m.names, "127.0.0.1:8080", found[1], "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCJ9...", found[2])
	m.sh.must(m.t, "git init -q", "git -c user.name=A -c user.email=a@example.com commit -q --allow-empty -m First")
}

// withCertificate is a machine that has a certificate, which its programs trust.
func (m *machine) withCertificate() {
	address := loopback.FreeAddress(m.t)
	m.names = append(m.names, "git.example.com", address, "127.0.0.1:443", address, " :443", " "+address)
	cert := filepath.Join(m.sh.dir, "cert.pem")
	if err := packhorsetest.WriteCertificate(cert, filepath.Join(m.sh.dir, "key.pem")); err != nil {
		m.t.Fatal(err)
	}
	now := time.Now() // that of faultyConfig
	if err := packhorsetest.WriteCertificateOf(now.Add(-30*24*time.Hour), now.Add(-80*time.Hour),
		m.stands("/etc/packhorse/cert.pem"), m.stands("/etc/packhorse/key.pem")); err != nil {
		m.t.Fatal(err)
	}
	m.sh.must(m.t, "export SSL_CERT_FILE="+cert+" CURL_CA_BUNDLE="+cert+" GIT_SSL_CAINFO="+cert, "unset GIT_CONFIG_GLOBAL")
}

// faultyConfig makes a configuration that has two faults.
const faultyConfig = `
cat >/etc/packhorse/config.yaml <<END
data: /var/lib/packhorse-next
orgs: /etc/packhorse/orgs
listen: "443"
tls-cert: /etc/packhorse/cert.pem
tls-key: /etc/packhorse/key.pem
END`

// packaged is a machine on which unpack does what the installation of a package does.
func (m *machine) packaged() {
	config, err := os.ReadFile("../../docs/deploy/config.yaml")
	if err != nil {
		m.t.Fatal(err)
	}
	m.listen("127.0.0.1:8080")
	m.listen("127.0.0.1:9090")
	m.write("config.yaml", string(config))
	m.sh.must(m.t, m.stands("unpack() { mv config.yaml /etc/packhorse/config.yaml; }"))
}

// serve starts a server by a configuration, of which this is what differs, and makes the repository
// web/site, to which TOKEN gives access.
func (m *machine) serve(config string) {
	m.t.Helper()
	address := loopback.FreeAddress(m.t)
	if !strings.Contains(config, "keys: ") {
		config += "orgs: /etc/packhorse/orgs\n"
	}
	m.write("/etc/packhorse/config.yaml", "data: /var/lib/packhorse\nlisten: "+address+"\n"+config)
	m.sh.must(m.t, m.stands(`
[ -d /etc/packhorse/orgs/acme ] || packhorse org generate acme --orgs /etc/packhorse/orgs
start
export PACKHORSE=http://`+address+`
export TOKEN=$(packhorse token --org acme --key acme-private.pem --repo web/site --scope git:write --scope repo:write)
`))
}

// site makes the repository web/site, with a commit.
func (m *machine) site() {
	m.t.Helper()
	m.sh.must(m.t, `curl -sSf -X POST -H "Authorization: Bearer $TOKEN" $PACKHORSE/api/v1/repos`,
		`history ${PACKHORSE/:\/\//:\/\/t:$TOKEN@}/web/site.git`)
}

// organization makes the organization acme with an org.yaml.
func (m *machine) organization(settings string) {
	m.t.Helper()
	m.sh.must(m.t, m.stands("packhorse org generate acme --orgs /etc/packhorse/orgs"))
	m.write("/etc/packhorse/orgs/acme/org.yaml", settings)
}

// shared has stores stand for the database and the bucket of the documents.
func (m *machine) shared(keys, files string, env []string) {
	m.names = append(m.names,
		"db.example.com:5432/packhorse and bucket s3://acme-git", "…", // as commands print them
		"postgres://packhorse@db.example.com/packhorse?sslmode=verify-full", keys,
		"postgres://packhorse@db.example.com/packhorse", keys, "s3://acme-git?region=eu-west-1", files)
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		m.names = append(m.names, name+"=...", name+"="+value)
		m.sh.must(m.t, "export "+variable)
	}
	m.sh.must(m.t, "export PACKHORSE_CACHE_BYTES=64MiB")
}

// overStores is a server over a database and a bucket.
func (m *machine) overStores() {
	stores := newSharedStores(m.t)
	m.shared(stores.keys, stores.files, stores.env)
	m.organization("")
	m.sh.must(m.t, m.stands("packhorse org apply /etc/packhorse/orgs --keys 'postgres://packhorse@db.example.com/packhorse'"))
	m.serve("keys: postgres://packhorse@db.example.com/packhorse\nfiles: s3://acme-git?region=eu-west-1\n")
	m.site()
}

// moving is a machine with a server that is to move to a database and a bucket.
func (m *machine) moving() {
	stores := newSharedStores(m.t)
	m.shared(stores.keys, stores.files, stores.env)
	m.names = append(m.names, " :8080", " "+loopback.FreeAddress(m.t))
	m.organization("")
	m.sh.must(m.t, m.stands("mv /etc/packhorse/orgs/acme/*.pem /etc/packhorse/orgs/acme/2026-key.pem"))
	m.serve("")
	m.site()
}

// withReceiver is a machine whose server has a webhook, which takes nothing.
func (m *machine) withReceiver() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}))
	m.t.Cleanup(receiver.Close)
	m.names = append(m.names, "https://ci.example.com", receiver.URL)
	m.organization("webhooks: [{url: https://ci.example.com/packhorse, secret: a long random text}]\n")
	m.serve("webhook-give-up: 0s\nupstream-allow: [127.0.0.1]\n")
	m.site()
}

// withUpstream is a machine with a server, and another one that has an upstream.
func (m *machine) withUpstream() {
	far := start(m.t, packhorsetest.Options{})
	token := create(m.t, far, "group/project")
	m.names = append(m.names, "glpat-...", token)
	m.organization("upstreams: {gitlab: " + far.URL + "}\n")
	m.write("/etc/packhorse/secret-key", strings.Repeat("k", 32))
	m.serve("secret-key: /etc/packhorse/secret-key\nupstream-allow: [127.0.0.1]\n")
	m.sh.must(m.t, "history "+strings.Replace(far.URL, "://", "://t:"+token+"@", 1)+"/group/project.git")
}

// twoServers is a machine on which two servers are to start over a database and a bucket.
func (m *machine) twoServers() {
	skipShort(m.t)
	cluster := postgrestest.Start(m.t)
	place, env := s3test.Start(m.t).Place(m.t)
	m.shared(strings.Replace(cluster.URL("packhorse"), "postgres@", "packhorse@", 1), place, env)
	address := m.listen("10.0.0.7:8080")
	m.listen("10.0.0.7:9090")
	m.names = append(m.names, " :8080", " "+address)
	m.write("/etc/packhorse/secret-key", strings.Repeat("k", 32))
	m.sh.must(m.t, "psql() { PGHOST="+filepath.Dir(cluster.Socket())+" command psql -q \"$@\"; }",
		"packhorse org generate acme --orgs orgs", "mv orgs/acme/*.pem orgs/acme/2026-key.pem")
}

// startOther starts the other server, which has all duties then.
const startOther = `
sed -e 's|/var/lib/packhorse|/var/lib/packhorse-other|' -e 's|^listen: .*|listen: 127.0.0.1:0|' -e '/^admin-listen:/d' \
	-e 's|^server-url: .*|server-url: http://10.0.0.8:8080|' /etc/packhorse/config.yaml >other.yaml
packhorse serve --config other.yaml
URL=$(grep -o 'http://.*' address)
until curl -sS $URL/metrics | grep '^packhorse_duties 5'; do sleep 0.05; done`

// changedOrgs has the database hold what the folder of organizations held before some changes.
const changedOrgs = `
packhorse org generate tools --orgs orgs
cp orgs/tools/*.pem orgs/acme/2025-key.pem
cat >orgs/acme/org.yaml <<END
limits: {repositories: 50}
webhooks: [{url: https://ci.example.com/packhorse, secret: before}]
END
packhorse org apply orgs --config /etc/packhorse/config.yaml
rm orgs/acme/2025-key.pem
sed -i -e s/50/80/ -e s/before/after/ orgs/acme/org.yaml`
