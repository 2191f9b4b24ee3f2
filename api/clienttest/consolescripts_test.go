//go:build clients

package clienttest_test

import (
	"testing"

	"packhorse/cmd/packhorse/packhorsetest"
)

// TestConsoleScripts asks the scripts of the console in Chromium, which is the engine that they are
// for, what they make of texts. Each script returns what is wrong.
func TestConsoleScripts(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium-browser")
	c := &console{openBrowser(t), start(t, packhorsetest.Options{}).URL + "/console"}
	c.open(c.url)
	const begin = `
		const wrong = [];
		const is = (what, got, want) => {
			if (JSON.stringify(got) !== JSON.stringify(want)) wrong.push(what + ": " + JSON.stringify(got) + ", want " + JSON.stringify(want));
		};
		let state = 1; // of a generator by Lehmer
		const random = (n) => (state = state * 48271 % 2147483647) % n;`
	for name, script := range map[string]string{
		// A patch is read into its lines, whatever they look like.
		"patch": `
			const { parse, pairs } = await import("/console/patch.js");
			const { hunks, binary } = parse("diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@ head\n one\n--- two\n+++ two\n+@@ -1 +1 @@\n" +
				" end\n\\ No newline at end of file\n@@ -10 +11 @@\n-x\n+y\n");
			is("binary", binary, false);
			is("titles", hunks.map((hunk) => hunk.title), ["head", ""]);
			is("rows", hunks[0].rows, [{ kind: " ", old: 1, now: 1, text: "one" }, { kind: "-", old: 2, text: "-- two" },
				{ kind: "+", now: 2, text: "++ two" }, { kind: "+", now: 3, text: "@@ -1 +1 @@" },
				{ kind: " ", old: 3, now: 4, text: "end", noEnd: true }]);
			is("pairs", pairs(hunks[0].rows).map((pair) => pair.map((row) => row && row.text)),
				[["one", "one"], ["-- two", "++ two"], [null, "@@ -1 +1 @@"], ["end", "end"]]);
			is("second", [hunks[1].rows[0].old, hunks[1].rows[1].now], [10, 11]);
			is("bytes", parse("diff --git a/b b/b\nGIT binary patch\nliteral 1\n").binary, true);
			const typed = parse("diff --git a/a b/a\ndeleted file mode 100644\nindex 1..0\n--- a/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n" +
				"diff --git a/a b/a\nnew file mode 120000\nindex 0..1\n--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+y\n");
			is("type", [typed.kind, typed.hunks.map(({ rows }) => rows.map((row) => row.kind + row.text))], ["symbolic link", [["-x"], ["+y"]]]);
			const kind = (lines) => parse("diff --git a/a b/a\n" + lines).kind;
			is("kinds", [kind("index 1..2 160000\n"), kind("old mode 100644\nnew mode 100755\n"), kind("index 1..2 120000\n")],
				["submodule", "", "symbolic link"]);`,
		// Line ends are worth a sign where a patch has both, and a line is cut where it is too long.
		"lines": `
			const { clip, mixesEnds, parse } = await import("/console/patch.js");
			const { lineEnds } = await import("/console/pages/file.js");
			const mixes = (rows) => mixesEnds(parse("diff --git a/a b/a\n@@ -1 +1 @@\n" + rows).hunks);
			is("mixed", [mixes("-a\r\n+a\n"), mixes("-a\r\n+b\r\n"), mixes("-a\n+b\n"), mixes("-a\r\n+b\n\\ No newline\n")],
				[true, false, false, false]);
			const bytes = (text) => new TextEncoder().encode(text);
			is("ends", [lineEnds(bytes("")), lineEnds(bytes("a\n")), lineEnds(bytes("a\r\nb\r\n")), lineEnds(bytes("a\r\nb\nc"))],
				["", "", "line ends are CR LF", "line ends are mixed, 1 of 2 CR LF, no line end at the end"]);
			for (let round = 0; round < 200; round++) {
				const parts = Array.from({ length: random(6) }, (_, i) => ["k" + i, "abcdefgh".slice(0, random(9))]);
				const text = parts.map(([, part]) => part).join("");
				const [from, size] = [random(20), 1 + random(20)];
				const cut = clip(parts, from, size);
				is("clip", cut.map(([, part]) => part).join(""), text.slice(from, from + size));
				if (cut.some(([, part]) => part === "")) wrong.push("an empty part");
			}`,
		// A diff is read as it comes, in any parts; of one that was cut, the files before the cut.
		"answer": `
			const { Answer } = await import("/console/patch.js");
			const files = [{ path: "a\"]}\\", raw: "}\n[", inline: [{ old: [[0, 1]] }] }, { path: "b", inline: [] }, { path: "{" }];
			const text = '{"branch":"\\"files\\":[{","files":' + JSON.stringify(files) + ',"filtered_files":[{"path":"c"}],"stats":{"files":4}}';
			for (const most of [1, 2, 5, 20, 100]) {
				for (let round = 0; round < 30; round++) {
					const answer = new Answer();
					const found = [];
					for (let i = 0; i < text.length;) {
						const size = 1 + random(most);
						found.push(...answer.take(text.slice(i, i + size)));
						i += size;
					}
					answer.end();
					is("head", answer.head, { branch: '"files":[{', files: [] });
					is("files", found, files);
					is("rest", answer.rest, { files: [], filtered_files: [{ path: "c" }], stats: { files: 4 } });
				}
			}
			let most = 0;
			for (let i = 0; i <= text.length; i++) {
				const found = new Answer().take(text.slice(0, i));
				is("cut at " + i, found, files.slice(0, found.length));
				if (found.length < most) wrong.push("fewer files at " + i);
				most = found.length;
			}
			is("all", most, 3);`,
		// The parts of a line are the line, in any language, and marks fall where the bytes are.
		"highlight": `
			const { Highlighter } = await import("/console/highlight.js");
			const { languageOf } = await import("/console/languages.js");
			const { overlay, units } = await import("/console/patch.js");
			const pieces = ["/*", "*/", "//", '"', "'", "\\", "\x60", "#", "--", "'''", "return", "0x1f", " ", "é", "_a", "<!--", "-->", "9"];
			for (const name of ["a.c", "a.go", "a.py", "a.html", "a.sql", "a.js", "a.lua", "Makefile", "a.none", "constructor", "a.__proto__"]) {
				const h = new Highlighter(languageOf(name));
				for (let i = 0; i < 300; i++) {
					const line = Array.from({ length: random(12) }, () => pieces[random(pieces.length)]).join("");
					const parts = h.split(line);
					is(name, parts.map(([, text]) => text).join(""), line);
					const from = random(line.length + 1);
					const to = from + random(line.length - from + 1);
					const marked = overlay(parts, [[from, to]]);
					is("overlay of " + name, marked.map(([, text]) => text).join(""), line);
					is("marked", marked.filter(([kind]) => kind.includes("changed")).map(([, text]) => text).join(""), line.slice(from, to));
				}
			}
			const h = new Highlighter(languageOf("x.c"));
			is("first", h.split("int a; /* one"), [["keyword", "int"], ["", " a; "], ["comment", "/* one"]]);
			is("next", h.split("two */ 12 'x\\'' // end"), [["comment", "two */"], ["", " "], ["number", "12"], ["", " "], ["string", "'x\\''"],
				["", " "], ["comment", "// end"]]);
			is("units", units("aéb", [[1, 3]]), [[1, 2]]);`,
		// The lanes that leave a row are those that enter the next one, in any history.
		"graph": `
			const { Lanes } = await import("/console/graph.js");
			for (let round = 0; round < 200; round++) {
				const size = 2 + random(30);
				const commits = Array.from({ length: size }, (_, i) => ({ sha: String(i), parent_shas: [...new Set(
					Array.from({ length: random(4) }, () => String(i + 1 + random(5))).filter((id) => Number(id) < size))] }));
				const lanes = new Lanes();
				let open = [];
				for (const commit of commits) {
					const { node, from, through, to } = lanes.place(commit);
					is("above", [...from, ...through].sort(), open);
					if (through.includes(node)) wrong.push("a commit on a lane of others");
					if (from.length > 0 && !from.includes(node)) wrong.push("a commit off its lanes");
					is("parents", to.length, commit.parent_shas.length);
					open = [...new Set([...through, ...to])].sort();
				}
				is("ends", open, []);
			}
			const late = new Lanes();
			late.place({ sha: "b", parent_shas: [] });
			is("a parent that came before", late.place({ sha: "a", parent_shas: ["b"] }).to, []);`,
		// What nobody would see is shown, and nothing else is changed.
		"visible": `
			const { pieces, plain, shown } = await import("/console/visible.js");
			const all = Array.from({ length: 0x3000 }, (_, i) => String.fromCharCode(i)).join("") + "\ufeff\u{e0041}";
			const raw = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/u;
			const text = shown(all).textContent;
			is("raw", [raw.test(text), raw.test(plain(all)), /[\t\n]/.test(text)], [false, false, false]);
			is("signs", plain("\x1b[31m\u202e\x7f\t"), "\u27e8ESC\u27e9[31m\u27e8U+202E\u27e9\u27e8DEL\u27e9\u27e8TAB\u27e9");
			is("kept", plain("é\u0645 👩\u200d🚀 <b>&amp;"), "é\u0645 👩\u200d🚀 <b>&amp;");
			is("joiner", plain("a\u200db"), "a\u27e8U+200D\u27e9b");
			is("lines", pieces("a\n\tb"), ["a\n\tb"]);
			is("elements", [...shown("<b>x</b>\x07").querySelectorAll("*")].map((e) => e.localName), ["span"]);`,
		// A text of metrics is read as Prometheus does.
		"metrics": `
			const { parse, sum, Histogram } = await import("/console/metrics.js");
			const metrics = parse('# HELP a b\n# TYPE a counter\na{route="x\\"}y",status="200"} 2\na{route="z",status="500"} 1e3\nb +Inf\n' +
				't_bucket{r="x",le="1"} 4\nt_bucket{r="x",le="2"} 10\nt_bucket{r="x",le="+Inf"} 12\nt_sum{r="x"} 20\nt_count{r="x"} 12\n');
			is("labels", metrics.get("a")[0].labels, { route: 'x"}y', status: "200" });
			is("sums", [sum(metrics, "a"), sum(metrics, "a", ({ status }) => status >= "500"), sum(metrics, "none") ?? null], [1002, 1000, null]);
			const h = Histogram.from(metrics, "t", "r").get("x");
			is("quantiles", [h.quantile(0.5), h.quantile(1), h.above(2), new Histogram().quantile(0.5)], [1 + 2 / 6, 2, 2, null]);
			is("since", [h.since(h).count, h.since(null).count, h.plus(h).count], [0, 12, 24]);`,
		// A token is read with whatever it holds, and anything else is none.
		"session": `
			const { claimsOf } = await import("/console/session.js");
			const token = (claims) => "e30." + btoa(JSON.stringify(claims)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "") + ".x";
			is("claims", claimsOf(token({ iss: "acme", repo: "a/b", scopes: ["git:read"], exp: 7 })),
				{ org: "acme", subject: "", expires: 7, repo: "a/b", scopes: ["git:read"] });
			is("organization", claimsOf(token({ iss: "acme", repo: "org" })).repo, "");
			is("others", ["", "a", "a.b.c", "a.bnVsbA.c", "..", "a.e30"].map((text) => claimsOf(text)?.org ?? null), [null, null, null, null, null, ""]);`,
	} {
		var wrong []string
		c.run(&wrong, begin+script+"\nreturn wrong.slice(0, 5);")
		for _, text := range wrong {
			t.Errorf("%s: %s", name, text)
		}
	}
}
