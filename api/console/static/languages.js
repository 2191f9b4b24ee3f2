// What the highlighter knows of languages: comments, strings and keywords.

const words = (text) => new Set(text.split(" "));

const cFamily = { line: ["//"], block: [["/*", "*/"]], strings: ['"', "'"] };
const hash = { line: ["#"], strings: ['"', "'"] };

const c = {
  ...cFamily,
  words: words(
    "auto break case char const continue default do double else enum extern float for goto if inline int " +
      "long register restrict return short signed sizeof static struct switch typedef union unsigned void " +
      "volatile while bool true false NULL nullptr class namespace template typename public private " +
      "protected virtual override new delete this throw try catch using constexpr noexcept operator",
  ),
};
const go = {
  ...cFamily,
  long: ["`"],
  words: words(
    "break case chan const continue default defer else fallthrough for func go goto if import interface " +
      "map package range return select struct switch type var nil true false iota string int int64 int32 " +
      "uint64 uint32 byte rune error bool any float64",
  ),
};
const js = {
  ...cFamily,
  long: ["`"],
  words: words(
    "async await break case catch class const continue debugger default delete do else export extends " +
      "finally for from function get if import in instanceof let new null of return set static super switch " +
      "this throw true false try typeof undefined var void while with yield interface type enum implements " +
      "readonly declare namespace abstract as is keyof string number boolean unknown never any",
  ),
};
const python = {
  ...hash,
  long: ['"""', "'''"],
  words: words(
    "and as assert async await break class continue def del elif else except finally for from global if " +
      "import in is lambda nonlocal not or pass raise return try while with yield None True False self " +
      "match case",
  ),
};
const ruby = {
  ...hash,
  words: words(
    "alias and begin break case class def defined? do else elsif end ensure false for if in module next " +
      "nil not or redo rescue retry return self super then true undef unless until when while yield require",
  ),
};
const shell = {
  ...hash,
  words: words(
    "case do done elif else esac fi for function if in select then until while break continue return exit " +
      "export local readonly set unset shift trap source echo printf cd test",
  ),
};
const rust = {
  line: ["//"],
  block: [["/*", "*/"]],
  strings: ['"'],
  words: words(
    "as async await break const continue crate dyn else enum extern false fn for if impl in let loop " +
      "match mod move mut pub ref return self Self static struct super trait true type unsafe use where " +
      "while i32 i64 u8 u32 u64 usize bool str String Option Some None Ok Err Result",
  ),
};
const java = {
  ...cFamily,
  words: words(
    "abstract assert boolean break byte case catch char class const continue default do double else enum " +
      "extends final finally float for if implements import instanceof int interface long native new null " +
      "package private protected public record return short static super switch synchronized this throw " +
      "throws true false try var void volatile while val fun object when is in override data sealed " +
      "companion lateinit",
  ),
};
const css = { block: [["/*", "*/"]], strings: ['"', "'"], words: words("important media supports import font-face") };
const lua = {
  line: ["--"],
  strings: ['"', "'"],
  words: words(
    "and break do else elseif end false for function goto if in local nil not or repeat return then true " +
      "until while",
  ),
};
const sql = {
  line: ["--"],
  block: [["/*", "*/"]],
  strings: ["'"],
  anyCase: true,
  words: words(
    "select from where insert into values update set delete create table index view drop alter add column " +
      "primary key foreign references not null and or in is like between join left right inner outer on " +
      "group by order having limit offset as distinct union all case when then else end begin commit " +
      "rollback default unique constraint",
  ),
};
const tcl = {
  ...hash,
  strings: ['"'],
  words: words(
    "after append array break catch continue default else elseif error eval expr for foreach global if " +
      "incr lappend lindex list llength lrange lsort namespace proc puts regexp regsub return set source " +
      "split string switch test uplevel upvar variable while tags",
  ),
};
const markup = { block: [["<!--", "-->"]], strings: ['"', "'"], words: words("") };
const data = { ...hash, words: words("true false null yes no on off") };
const json = { strings: ['"'], words: words("true false null") };
const make = {
  ...hash,
  words: words("ifeq ifneq ifdef ifndef else endif include define endef export override all clean"),
};

const byExtension = {
  c,
  h: c,
  cc: c,
  cpp: c,
  hpp: c,
  cxx: c,
  m: c,
  go,
  js,
  mjs: js,
  cjs: js,
  ts: js,
  tsx: js,
  jsx: js,
  py: python,
  pyi: python,
  rb: ruby,
  sh: shell,
  bash: shell,
  zsh: shell,
  rs: rust,
  java,
  kt: java,
  scala: java,
  cs: java,
  swift: java,
  php: js,
  css,
  scss: css,
  lua,
  sql,
  tcl,
  html: markup,
  xml: markup,
  svg: markup,
  vue: markup,
  yaml: data,
  yml: data,
  toml: data,
  ini: data,
  conf: data,
  json,
  mk: make,
  pl: shell,
  proto: java,
};
const byName = { makefile: make, gnumakefile: make, dockerfile: shell, rakefile: ruby, gemfile: ruby };

// languageOf returns what is known of a file's language; undefined for nothing.
export function languageOf(path) {
  const name = path.slice(path.lastIndexOf("/") + 1).toLowerCase();
  const extension = name.includes(".") ? name.slice(name.lastIndexOf(".") + 1) : "";
  const found = Object.hasOwn(byName, name) ? byName[name] : undefined;
  return found ?? (Object.hasOwn(byExtension, extension) ? byExtension[extension] : undefined);
}
