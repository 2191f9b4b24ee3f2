package openapi

import (
	"fmt"
	"strings"
)

// agentsText is the text for agents: what the API is, its conventions, and a line for each call.
func agentsText(info *Info, operations []Operation) string {
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n\n> %s\n\n%s\n", info.Title, info.Summary, strings.TrimSpace(info.Description))
	text.WriteString("\n## Documents\n\n")
	fmt.Fprintf(&text, "- [OpenAPI 3.1](%s): every call with schemas, examples, statuses and errors\n", DocumentPath)
	fmt.Fprintf(&text, "- [The same for people](%s)\n", PagePath)
	text.WriteString("\n## Scopes of tokens\n\n")
	for _, scope := range info.Scopes {
		fmt.Fprintf(&text, "- `%s`: %s\n", scope.Name, scope.Description)
	}
	twins := make(map[string]string)
	for i := range operations {
		if o := &operations[i]; o.Twin != "" {
			twins[o.Twin] = o.Path
		}
	}
	for _, group := range info.Groups {
		fmt.Fprintf(&text, "\n## %s\n\n", group.Name)
		for i := range operations {
			o := &operations[i]
			if o.Group != group.Name || o.Twin != "" {
				continue
			}
			fmt.Fprintf(&text, "- `%s %s`: %s", o.Method, o.Path, o.Summary)
			if o.Scope != "" {
				fmt.Fprintf(&text, " (`%s`)", o.Scope)
			}
			if twin := twins[o.ID]; twin != "" {
				fmt.Fprintf(&text, "; also `%s`", twin)
			}
			text.WriteString("\n")
		}
	}
	return text.String()
}
