// npm install @pierre/storage; then PACKHORSE=http://127.0.0.1:8080 ORG=dev KEY=dev.key node example.mjs
import { readFileSync } from 'node:fs';
import { GitStorage } from '@pierre/storage';

const server = process.env.PACKHORSE;
const store = new GitStorage({
  name: process.env.ORG,
  key: readFileSync(process.env.KEY, 'utf8'), // the private key of the organization signs the tokens
  apiBaseUrl: server,
  storageBaseUrl: new URL(server).host,
});

const repo = await store.createRepo({ id: 'web/example' });
const author = { name: 'Ada', email: 'ada@example.com' };
const { commitSha } = await repo
  .createCommit({ targetBranch: 'main', commitMessage: 'Say hello', author })
  .addFileFromString('hello.txt', 'hello\n')
  .send();
const { paths } = await repo.listFiles({ ref: commitSha });
console.log(commitSha, paths);
