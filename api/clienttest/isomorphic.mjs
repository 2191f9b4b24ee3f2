// An isomorphic-git client for the acceptance tests: clones a repository, commits one file, and
// pushes a branch.
// Usage: node isomorphic.mjs URL DIR BRANCH, where URL contains user and password.
import fs from 'node:fs';
import path from 'node:path';
import git from 'isomorphic-git';
import http from 'isomorphic-git/http/node';

const [address, dir, branch] = process.argv.slice(2);
const url = new URL(address);
const credentials = { username: url.username, password: url.password };
url.username = url.password = '';
const remote = { fs, http, dir, onAuth: () => credentials };

await git.clone({ ...remote, url: url.toString() });
await git.branch({ fs, dir, ref: branch, checkout: true });
const filepath = `${branch}.txt`;
fs.writeFileSync(path.join(dir, filepath), `written by ${branch}\n`);
await git.add({ fs, dir, filepath });
await git.commit({ fs, dir, message: `Add ${filepath}`, author: { name: 'Isomorphic Git', email: 'isomorphic@example.com' } });
const result = await git.push({ ...remote, remote: 'origin', ref: branch });
if (!result.ok) {
  throw new Error(`push: ${JSON.stringify(result)}`);
}
await git.fetch({ ...remote, remote: 'origin' });
