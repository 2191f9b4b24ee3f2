// The tokens of this tab. They are in sessionStorage, which ends with the tab and which no other
// origin reads; nothing else keeps them.

const key = "packhorse.tokens";

// all returns the tokens with their claims, which the server has checked and we only read.
export function all() {
  let texts = [];
  try {
    texts = JSON.parse(sessionStorage.getItem(key) ?? "[]");
  } catch {
    sessionStorage.removeItem(key);
  }
  return texts.map((text) => ({ text, claims: claimsOf(text) }));
}

// claimsOf reads a token; null for a text that is none.
export function claimsOf(text) {
  try {
    const body = text.split(".")[1].replace(/-/g, "+").replace(/_/g, "/");
    const bytes = Uint8Array.from(atob(body), (c) => c.charCodeAt(0));
    const claims = JSON.parse(new TextDecoder().decode(bytes));
    return {
      org: String(claims.iss ?? ""),
      subject: String(claims.sub ?? ""),
      expires: Number(claims.exp ?? 0),
      repo: claims.repo && claims.repo !== "org" ? String(claims.repo) : "",
      scopes: Array.isArray(claims.scopes) ? claims.scopes.map(String) : [],
    };
  } catch {
    return null;
  }
}

export function add(text) {
  const texts = all()
    .map((token) => token.text)
    .filter((other) => other !== text);
  sessionStorage.setItem(key, JSON.stringify([text, ...texts]));
}

export function remove(text) {
  const texts = all()
    .map((token) => token.text)
    .filter((other) => other !== text);
  sessionStorage.setItem(key, JSON.stringify(texts));
}

export function clear() {
  sessionStorage.removeItem(key);
}

// The newest token that has not expired and fits.
function find(fits) {
  return all().find(({ claims }) => claims && !expired(claims) && fits(claims))?.text;
}

export function expired(claims) {
  return claims.expires <= Date.now() / 1000;
}

// hadRepository reports whether the tab has a token for a repository that has expired.
export function hadRepository(name) {
  return all().some(({ claims }) => claims && expired(claims) && claims.repo === name && reads(claims));
}

// hadOrganization reports the same of a token that lists repositories.
export function hadOrganization() {
  return all().some(({ claims }) => claims && expired(claims) && claims.scopes.includes("org:read"));
}

export function reads(claims) {
  return claims.repo !== "" && claims.scopes.some((scope) => scope === "git:read" || scope === "git:write");
}

// repositories are the names of those that the tokens of the tab read, also with an expired one.
export function repositories() {
  return [...new Set(all().flatMap(({ claims }) => (claims && reads(claims) ? [claims.repo] : [])))];
}

// forOrganization is a token that lists repositories.
export function forOrganization() {
  return find((claims) => claims.scopes.includes("org:read"));
}

// forRepository is a token that reads a repository: each is for one.
export function forRepository(name) {
  return find((claims) => claims.repo === name && reads(claims));
}

export function organization() {
  return all().find(({ claims }) => claims)?.claims.org ?? "";
}
