package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Size of the plot in pixels.
const (
	plotWidth  = 760
	plotLabels = 230 // left of the bars
	plotRow    = 30
	plotTop    = 46
)

// Ends of the logarithmic axis.
const (
	ratioMin = 0.02
	ratioMax = 5.0
)

// plot draws the ratios of wall and CPU time of each job as an SVG, on a logarithmic axis with a
// line where both are equal.
func plot(name, theirs string, figures []measured) string {
	type row struct {
		job       string
		wall, cpu float64
	}
	var rows []row
	for _, m := range figures {
		if m.job != "" {
			rows = append(rows, row{job: m.job})
		}
		last := &rows[len(rows)-1]
		switch m.measure {
		case "wall":
			last.wall = m.ratio()
		case "server CPU":
			last.cpu = m.ratio()
		}
	}
	var svg strings.Builder
	height := plotTop + plotRow*len(rows) + 10
	fmt.Fprintf(&svg,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		plotWidth, height)
	fmt.Fprintf(&svg, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, height)
	fmt.Fprintf(&svg, `<text x="10" y="18" font-size="14">%s: packhorse over %s, less is better</text>`+"\n",
		html.EscapeString(name), theirs)
	for _, mark := range []float64{0.05, 0.1, 0.25, 0.5, 1, 2} {
		colour := "#ddd"
		if mark == 1 {
			colour = "#444"
		}
		x := position(mark)
		fmt.Fprintf(&svg,
			`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s"/><text x="%.1f" y="38" text-anchor="middle" fill="#666">%g</text>`+"\n",
			x, plotTop-4, x, height-8, colour, x, mark)
	}
	for i, row := range rows {
		y := plotTop + plotRow*i
		fmt.Fprintf(&svg, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", plotLabels-10, y+16,
			html.EscapeString(row.job))
		bar(&svg, y+2, row.wall, "#3b6ea5", "wall")
		bar(&svg, y+14, row.cpu, "#c98b2b", "CPU")
	}
	svg.WriteString("</svg>\n")
	return svg.String()
}

// bar draws a ratio from the left end of the axis; nothing for a ratio that is not known.
func bar(svg *strings.Builder, y int, ratio float64, colour, what string) {
	if ratio == 0 {
		return
	}
	end := position(ratio)
	fmt.Fprintf(svg,
		`<rect x="%d" y="%d" width="%.1f" height="11" fill="%s"/><text x="%.1f" y="%d" font-size="10">%s %.2f</text>`+"\n",
		plotLabels, y, end-plotLabels, colour, end+4, y+9, what, ratio)
}

// position maps a ratio to the horizontal axis.
func position(ratio float64) float64 {
	ratio = math.Min(math.Max(ratio, ratioMin), ratioMax)
	share := math.Log(ratio/ratioMin) / math.Log(ratioMax/ratioMin)
	return plotLabels + share*(plotWidth-plotLabels-80)
}
