package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"runtime/debug"
	"time"
)

// bill is a bill of materials in the form of CycloneDX 1.5, https://cyclonedx.org.
type bill struct {
	Format       string           `json:"bomFormat"`
	SpecVersion  string           `json:"specVersion"`
	Version      int              `json:"version"`
	Metadata     billMetadata     `json:"metadata"`
	Components   []billComponent  `json:"components"`
	Dependencies []billDependency `json:"dependencies"`
}

type billMetadata struct {
	Timestamp string        `json:"timestamp"`
	Component billComponent `json:"component"`
}

type billComponent struct {
	Type       string         `json:"type"`
	Ref        string         `json:"bom-ref"`
	Name       string         `json:"name"`
	Version    string         `json:"version"`
	PURL       string         `json:"purl,omitempty"`
	Hashes     []billHash     `json:"hashes,omitempty"`
	Properties []billProperty `json:"properties,omitempty"`
}

type billHash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type billProperty struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type billDependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// billOfMaterials tells which modules a binary was built of, and by which Go, as the binary says
// itself. The sum of a module is that of go.sum.
func billOfMaterials(bin, version string, at time.Time, sum [sha256.Size]byte) ([]byte, error) {
	info, err := buildinfo.ReadFile(bin)
	if err != nil {
		return nil, err
	}
	app := billComponent{
		Type: "application", Ref: "packhorse", Name: "packhorse", Version: version,
		Hashes: []billHash{{"SHA-256", hex.EncodeToString(sum[:])}},
	}
	for _, setting := range info.Settings {
		app.Properties = append(app.Properties, billProperty{"go:" + setting.Key, setting.Value})
	}
	goVersion := info.GoVersion
	made := bill{
		Format: "CycloneDX", SpecVersion: "1.5", Version: 1,
		Metadata:   billMetadata{at.Format(time.RFC3339), app},
		Components: []billComponent{{Type: "framework", Ref: "go", Name: "go", Version: goVersion, PURL: "pkg:golang/std@" + goVersion}},
	}
	depends := billDependency{Ref: app.Ref, DependsOn: []string{"go"}}
	for _, module := range info.Deps {
		component := moduleComponent(module)
		made.Components = append(made.Components, component)
		depends.DependsOn = append(depends.DependsOn, component.Ref)
	}
	made.Dependencies = []billDependency{depends}
	text, err := json.MarshalIndent(made, "", "  ")
	return append(text, '\n'), err
}

// moduleComponent describes a module, or the one that replaces it.
func moduleComponent(module *debug.Module) billComponent {
	if module.Replace != nil {
		module = module.Replace
	}
	url := "pkg:golang/" + module.Path + "@" + module.Version
	return billComponent{
		Type: "library", Ref: url, Name: module.Path, Version: module.Version, PURL: url,
		Properties: []billProperty{{"go:sum", module.Sum}},
	}
}
