// Elements. This is the only file that makes them, and text becomes nothing but text nodes: what
// comes from a repository cannot become markup.

const svgSpace = "http://www.w3.org/2000/svg";

// h makes an element of HTML. A function among the attributes is a listener: {click: f}. A false,
// null or undefined attribute is left out; children may be nodes, texts, and arrays of both.
export function h(name, attributes, ...children) {
  return build(document.createElement(name), attributes, children);
}

// s makes an element of SVG.
export function s(name, attributes, ...children) {
  return build(document.createElementNS(svgSpace, name), attributes, children);
}

function build(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  append(element, children);
  return element;
}

// append adds children as h does.
export function append(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child instanceof Node) element.append(child);
    else if (child !== null && child !== undefined && child !== false) element.append(String(child));
  }
}

// say has a screen reader speak a text.
export function say(text) {
  document.getElementById("spoken").textContent = text;
}
