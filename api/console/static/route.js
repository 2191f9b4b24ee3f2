// Addresses. A page is the fragment of the URL: #/<page>?<parameters>. A fragment stays in the
// browser: neither servers nor logs on the way learn what is looked at.

// at is the address of a page. Parameters that are undefined or "" are left out.
export function at(page, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== "" && value !== false) query.set(name, value);
  }
  const text = query.toString();
  return `#/${page}${text ? "?" + text : ""}`;
}

// parse reads the fragment of the window.
export function parse() {
  const fragment = location.hash.replace(/^#\/?/, "");
  const mark = fragment.indexOf("?");
  const query = new URLSearchParams(mark < 0 ? "" : fragment.slice(mark + 1));
  return { page: mark < 0 ? fragment : fragment.slice(0, mark), parameters: Object.fromEntries(query) };
}

// go shows the page of an address, anew if it is shown already.
export function go(address) {
  if (location.hash === address) dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = address;
}
