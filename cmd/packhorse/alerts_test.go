package main_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// watchable are the metrics that rules and dashboard may use: those of a scrape, and those of
// shared stores as docs/monitoring.md has them, which have no labels. That page is held against the
// code.
func watchable(t *testing.T) *queryChecker {
	t.Helper()
	_, section, found := strings.Cut(docsPage(t, "monitoring.md"), "\n### Metrics of shared stores\n")
	section, _, ended := strings.Cut(section, "\n## ")
	if !found || !ended {
		t.Fatal("the page has no metrics of shared stores")
	}
	metrics := maps.Clone(scrape(t))
	for name, kind := range pairs(metricRow, section) {
		metrics[name] = &metric{kind: kind}
	}
	return &queryChecker{metrics}
}

var (
	alarmHeading  = regexp.MustCompile(`(?m)^### ([A-Z][A-Za-z]+)$`)
	templateLabel = regexp.MustCompile(`\$labels\.([a-z_]+)`)
	templatePart  = regexp.MustCompile(`\{\{[^}]*\}\}`)
	templateKnown = regexp.MustCompile(`^\{\{ (\$labels\.[a-z_]+|\$value( \| humanize(Percentage|Duration))?) \}\}$`)
)

// Each alert asks for metrics and labels that a server shows, says what has happened with labels
// that the result has, and leads to a section of docs/monitoring.md, which has no others.
func TestAlerts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/deploy/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For string
				Labels           struct{ Severity string }
				Annotations      struct{ Summary, Description, Runbook string }
			}
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(docsPage(t, "monitoring.md"), "\n## Alarms\n")
	section, _, _ = strings.Cut(section, "\n## ")
	missing := make(map[string]bool)
	for _, heading := range alarmHeading.FindAllStringSubmatch(section, -1) {
		missing[heading[1]] = true
	}
	checker, seen := watchable(t), make(map[string]bool)
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			q, err := parseQuery(rule.Expr)
			var labels []string
			if err == nil {
				labels, _, err = checker.check(q)
			}
			if err != nil {
				t.Errorf("%s: %v", rule.Alert, err)
				continue
			}
			if q.kind != binaryQuery || slices.Contains([]string{"+", "-", "*", "/"}, q.name) {
				t.Errorf("%s: it compares nothing", rule.Alert)
			}
			if seen[rule.Alert] || !strings.HasPrefix(rule.Alert, "Packhorse") {
				t.Errorf("%q is a second one, or not ours", rule.Alert)
			}
			seen[rule.Alert] = true
			if _, err := time.ParseDuration(rule.For); err != nil && rule.For != "" {
				t.Errorf("%s: for: %v", rule.Alert, err)
			}
			if !slices.Contains([]string{"critical", "warning"}, rule.Labels.Severity) {
				t.Errorf("%s: the severity %q", rule.Alert, rule.Labels.Severity)
			}
			for _, text := range []string{rule.Annotations.Summary, rule.Annotations.Description} {
				if !strings.HasSuffix(text, ".") {
					t.Errorf("%s: %q is no sentence", rule.Alert, text)
				}
				for _, part := range templatePart.FindAllString(text, -1) {
					if !templateKnown.MatchString(part) {
						t.Errorf("%s: the template %s", rule.Alert, part)
					}
				}
				for _, label := range templateLabel.FindAllStringSubmatch(text, -1) {
					if !slices.Contains(labels, label[1]) {
						t.Errorf("%s tells the label %s of %v", rule.Alert, label[1], labels)
					}
				}
			}
			if want := "docs/monitoring.md#" + strings.ToLower(rule.Alert); rule.Annotations.Runbook != want || !missing[rule.Alert] {
				t.Errorf("%s: the runbook %q, want %q and a section", rule.Alert, rule.Annotations.Runbook, want)
			}
			delete(missing, rule.Alert)
		}
	}
	for name := range missing {
		t.Errorf("docs/monitoring.md explains %s, which is no alert", name)
	}
	if len(seen) < 20 {
		t.Errorf("%d alerts", len(seen))
	}
}

// dashboardPanel is a panel as Grafana stores it.
type dashboardPanel struct {
	ID          int
	Type, Title string
	GridPos     struct{ X, Y, W, H int }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct{ RefID, Expr, LegendFormat string }
}

// unitSuffixes say what the metrics of a panel with a unit are called.
var unitSuffixes = map[string]*regexp.Regexp{
	"s":     regexp.MustCompile(`_seconds(_total|_bucket)?$|_total$`), // a mean is divided by a count
	"bytes": regexp.MustCompile(`_bytes(_bucket)?$`),
	"Bps":   regexp.MustCompile(`_bytes_(total|sum)$`),
	"reqps": regexp.MustCompile(`_total$`),
	"ops":   regexp.MustCompile(`_(total|count)$`),
}

// Each panel of the dashboard asks for metrics and labels that a server shows, in their unit.
func TestDashboard(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/deploy/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Title, UID string
		Panels     []dashboardPanel
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	checker := watchable(t)
	ids, taken := make(map[int]bool), make(map[[2]int]string)
	variable := regexp.MustCompile(`label_values\((.+), ([a-z]+)\)`)
	for _, asked := range variable.FindAllStringSubmatch(strings.ReplaceAll(string(text), `\"`, `"`), -1) {
		q, err := parseQuery(asked[1])
		if err == nil {
			_, _, err = checker.check(q)
		}
		if err != nil || !slices.Contains(targetLabels, asked[2]) {
			t.Errorf("variable %s: %v", asked[0], err)
		}
	}
	for _, panel := range file.Panels {
		if ids[panel.ID] || panel.Title == "" {
			t.Errorf("panel %d %q: a second one of the number, or without a title", panel.ID, panel.Title)
		}
		ids[panel.ID] = true
		for x := panel.GridPos.X; x < panel.GridPos.X+panel.GridPos.W; x++ {
			for y := panel.GridPos.Y; y < panel.GridPos.Y+panel.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s is upon %s, or outside", panel.Title, other)
				}
				taken[[2]int{x, y}] = panel.Title
			}
		}
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("%s asks for nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			checkTarget(t, checker, &panel, target.Expr, target.LegendFormat)
		}
	}
	if len(file.Panels) < 30 || file.UID != "packhorse" {
		t.Errorf("%d panels of %q", len(file.Panels), file.UID)
	}
}

var (
	grafanaVariable = regexp.MustCompile(`\$[a-z_]+`)
	legendLabel     = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)
)

// checkTarget checks an expression of a panel and its legend.
func checkTarget(t *testing.T, checker *queryChecker, panel *dashboardPanel, expr, legend string) {
	t.Helper()
	expr = strings.ReplaceAll(expr, "[$__rate_interval]", "[5m]")
	for _, name := range targetLabels {
		expr = strings.ReplaceAll(expr, `"$`+name+`"`, `".*"`)
	}
	if unknown := grafanaVariable.FindString(expr); unknown != "" {
		t.Errorf("%s: the variable %s", panel.Title, unknown)
	}
	q, err := parseQuery(expr)
	var labels []string
	if err == nil {
		labels, _, err = checker.check(q)
	}
	if err != nil {
		t.Errorf("%s: %s: %v", panel.Title, expr, err)
		return
	}
	for _, label := range legendLabel.FindAllStringSubmatch(legend, -1) {
		if !slices.Contains(labels, label[1]) {
			t.Errorf("%s: the legend has %s, and the series %v", panel.Title, label[1], labels)
		}
	}
	suffix := unitSuffixes[panel.FieldConfig.Defaults.Unit]
	for _, name := range q.selectors() {
		if suffix != nil && !suffix.MatchString(name) {
			t.Errorf("%s: %s in the unit %s", panel.Title, name, panel.FieldConfig.Defaults.Unit)
		}
		if !strings.Contains(expr, name+"{job=") {
			t.Errorf("%s: %s of all jobs and servers", panel.Title, name)
		}
	}
}
