// Acceptance test of the reference client, @pierre/storage, unchanged. npm_test.go starts it with
// the server's URL and key.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { ApiError, GitStorage, RefUpdateError, validateWebhook } from '@pierre/storage';

const base = process.env.PACKHORSE_TEST_URL;
const org = process.env.PACKHORSE_TEST_ORG;
const key = fs.readFileSync(process.env.PACKHORSE_TEST_KEY, 'utf8');
const zeros = '0'.repeat(40);
const author = { name: 'Ada', email: 'ada@example.com' };

const store = new GitStorage({ name: org, key, apiBaseUrl: base, storageBaseUrl: new URL(base).host });

let scratch;
before(() => {
  scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'packhorse-pierre-'));
});
after(() => fs.rmSync(scratch, { recursive: true, force: true }));

const environment = {
  ...process.env,
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_TERMINAL_PROMPT: '0',
  GIT_AUTHOR_NAME: 'Git',
  GIT_AUTHOR_EMAIL: 'git@example.com',
  GIT_COMMITTER_NAME: 'Git',
  GIT_COMMITTER_EMAIL: 'git@example.com',
};

function git(dir, ...args) {
  return execFileSync('git', args, { cwd: dir, env: environment, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim();
}

let count = 0;
function folder() {
  count += 1;
  return path.join(scratch, `work-${count}`);
}

function commit(repo, options = {}) {
  return repo.createCommit({ targetBranch: 'main', commitMessage: 'a commit', author, ...options });
}

async function text(response) {
  assert.equal(response.status, 200);
  return response.text();
}

describe('repositories', () => {
  test('create, find, list, delete', async () => {
    const repo = await store.createRepo({ id: 'life/one', defaultBranch: 'trunk' });
    assert.equal(repo.id, 'life/one');
    const found = await store.findOne({ id: 'life/one' });
    assert.equal(found.defaultBranch, 'trunk');
    assert.ok(!Number.isNaN(Date.parse(found.createdAt)), found.createdAt);
    await assert.rejects(store.createRepo({ id: 'life/one' }), /already exists/);

    const { repos } = await store.listRepos({ q: 'LIFE/' });
    assert.deepEqual(repos.map((r) => [r.url, r.defaultBranch]), [['life/one', 'trunk']]);

    const deleted = await store.deleteRepo({ id: 'life/one' });
    assert.equal(deleted.repoId, repos[0].repoId);
    assert.equal(await store.findOne({ id: 'life/one' }), null);
    await assert.rejects(store.deleteRepo({ id: 'life/one' }), /already deleted|not found/);
    assert.equal(await store.findOne({ id: 'never/made' }), null);
  });

  test('a name made up by the client', async () => {
    const repo = await store.createRepo();
    assert.match(repo.id, /^[0-9a-f-]{36}$/);
    assert.equal((await store.findOne({ id: repo.id })).defaultBranch, 'main');
  });

  test('listing in pages, in the order of creation', async () => {
    const names = Array.from({ length: 5 }, (_, i) => `pages/${5 - i}`);
    for (const id of names) {
      await store.createRepo({ id });
    }
    const seen = [];
    let cursor;
    do {
      const page = await store.listRepos({ q: 'pages/', limit: 2, cursor });
      assert.equal(page.hasMore, page.nextCursor !== undefined);
      seen.push(...page.repos.map((r) => r.url));
      cursor = page.nextCursor;
    } while (cursor);
    assert.deepEqual(seen, names);
  });
});

describe('commits', () => {
  test('the first commit, more kinds of content, deletion, modes', async () => {
    const repo = await store.createRepo({ id: 'commits/kinds' });
    const first = await commit(repo)
      .addFileFromString('README.md', '# hello\n')
      .addFile('/bytes.bin', new Uint8Array([0, 1, 2, 255]))
      .addFile('blob.txt', new Blob(['from a blob']))
      .addFile('stream.txt', new Blob(['from a stream']).stream())
      .addFile('pieces.txt', (async function* () {
        yield new TextEncoder().encode('one ');
        yield new TextEncoder().encode('two');
      })())
      .addFile('empty', new Uint8Array(0))
      .addFileFromString('latin.txt', 'caf\u00e9', { encoding: 'latin1' })
      .addFileFromString('bin/run.sh', '#!/bin/sh\n', { mode: '100755' })
      .addFileFromString('link', 'README.md', { mode: '120000' })
      .send();
    assert.match(first.commitSha, /^[0-9a-f]{40}$/);
    assert.equal(first.targetBranch, 'main');
    assert.equal(first.blobCount, 9);
    assert.deepEqual(first.refUpdate, { branch: 'main', oldSha: zeros, newSha: first.commitSha });

    const second = await commit(repo, { expectedHeadSha: first.commitSha, committer: { name: 'Grace', email: 'grace@example.com' } })
      .addFileFromString('dir/new.txt', 'new\n')
      .deletePath('bytes.bin')
      .deletePath('bin')
      .send();
    assert.equal(second.refUpdate.oldSha, first.commitSha);

    const { paths, entries, ref } = await repo.listFiles();
    assert.equal(ref, 'main');
    assert.deepEqual(paths.toSorted(), ['README.md', 'blob.txt', 'dir/new.txt', 'empty', 'latin.txt', 'link', 'pieces.txt', 'stream.txt']);
    assert.equal(entries.find((e) => e.path === 'link').type, 'symlink');
    assert.equal(entries.find((e) => e.path === 'README.md').mode, '100644');

    const before = await repo.listFiles({ ref: first.commitSha });
    assert.ok(before.paths.includes('bin/run.sh'));

    const { commits } = await repo.listCommits();
    assert.deepEqual(commits.map((c) => c.sha), [second.commitSha, first.commitSha]);
    assert.deepEqual(commits.map((c) => c.parentShas), [[first.commitSha], []]);
    assert.equal(commits[0].message, 'a commit');
    assert.equal(commits[0].authorName, 'Ada');
    assert.equal(commits[0].committerName, 'Grace');
    assert.equal(commits[1].committerEmail, 'ada@example.com');
    assert.ok(Math.abs(commits[0].date - Date.now()) < 600_000);

    const dir = folder();
    git(scratch, 'clone', '-q', await repo.getRemoteURL(), dir);
    git(dir, 'fsck', '--full', '--strict', '--no-dangling');
    assert.equal(git(dir, 'rev-parse', 'HEAD'), second.commitSha);
    assert.equal(git(dir, 'rev-parse', 'HEAD^{tree}'), second.treeSha);
    assert.equal(git(dir, 'ls-tree', 'HEAD~1', 'bin/run.sh').slice(0, 6), '100755');
    assert.deepEqual(fs.readFileSync(path.join(dir, 'latin.txt')), Buffer.from('caf\u00e9', 'latin1'));
    assert.equal(fs.readFileSync(path.join(dir, 'pieces.txt'), 'utf8'), 'one two');
    assert.equal(git(dir, 'status', '--porcelain'), '');
  });

  test('a file of several chunks', async () => {
    const repo = await store.createRepo({ id: 'commits/chunks' });
    const sizes = [4 * 1024 * 1024, 4 * 1024 * 1024 + 1, 9 * 1024 * 1024];
    const builder = commit(repo);
    const contents = sizes.map((size, i) => Buffer.alloc(size, `content ${i} `));
    contents.forEach((content, i) => builder.addFile(`big${i}.bin`, content));
    await builder.send();
    for (const [i, content] of contents.entries()) {
      const response = await repo.getFileStream({ path: `big${i}.bin` });
      assert.equal(response.status, 200);
      assert.ok(Buffer.from(await response.arrayBuffer()).equals(content), `big${i}.bin`);
    }
  });

  test('expectations', async () => {
    const repo = await store.createRepo({ id: 'commits/expectations' });
    const first = await commit(repo).addFileFromString('a', '1').send();
    const second = await commit(repo).addFileFromString('a', '2').send();
    await assert.rejects(
      commit(repo, { expectedHeadSha: first.commitSha }).addFileFromString('a', '3').send(),
      (err) => {
        assert.ok(err instanceof RefUpdateError, String(err));
        assert.equal(err.reason, 'precondition_failed');
        assert.equal(err.refUpdate.branch, 'main');
        return true;
      },
    );
    await assert.rejects(commit(repo, { targetBranch: 'absent' }).addFileFromString('a', '3').send(), { reason: 'not_found' });
    await assert.rejects(commit(repo).send(), { reason: 'invalid' });
    await assert.rejects(commit(repo).deletePath('absent').send(), { reason: 'invalid' });
    await assert.rejects(commit(repo).addFileFromString('../up', 'x').send(), { reason: 'invalid' });
    await assert.rejects(commit(repo).addFileFromString('.git/config', 'x').send(), { reason: 'invalid' });
    const { commits } = await repo.listCommits();
    assert.equal(commits[0].sha, second.commitSha);
  });

  test('branches from a base, and ephemeral ones', async () => {
    const repo = await store.createRepo({ id: 'commits/branches' });
    const root = await commit(repo).addFileFromString('a', '1').send();

    const topic = await commit(repo, { targetBranch: 'topic', baseBranch: 'main', expectedHeadSha: root.commitSha })
      .addFileFromString('b', '2').send();
    const spike = await commit(repo, { targetBranch: 'spike', baseBranch: 'main', ephemeral: true }).addFileFromString('c', '3').send();
    const deeper = await commit(repo, { targetBranch: 'deeper', baseBranch: 'spike', ephemeral: true, ephemeralBase: true })
      .addFileFromString('d', '4').send();
    await assert.rejects(commit(repo, { targetBranch: 'x', baseBranch: 'absent' }).addFileFromString('b', '2').send(), { reason: 'not_found' });

    const durable = await repo.listBranches();
    assert.deepEqual(durable.branches.map((b) => [b.name, b.headSha]), [['main', root.commitSha], ['topic', topic.commitSha]]);
    assert.ok(!Number.isNaN(Date.parse(durable.branches[0].createdAt)));
    const ephemeral = await repo.listBranches({ ephemeral: true });
    assert.deepEqual(ephemeral.branches.map((b) => b.name), ['spike', 'deeper']);

    assert.deepEqual((await repo.listFiles({ ref: 'deeper', ephemeral: true })).paths, ['a', 'c', 'd']);
    const { commits } = await repo.listCommits({ branch: 'deeper', ephemeral: true });
    assert.deepEqual(commits.map((c) => c.sha), [deeper.commitSha, spike.commitSha, root.commitSha]);
    assert.equal(await text(await repo.getFileStream({ path: 'c', ref: 'spike', ephemeral: true })), '3');
    await assert.rejects(repo.listFiles({ ref: 'spike' }), (err) => err instanceof ApiError && err.status === 404);
  });

  test('branches and commits in pages', async () => {
    const repo = await store.createRepo({ id: 'commits/pages' });
    const made = [];
    for (let i = 0; i < 5; i += 1) {
      made.unshift((await commit(repo).addFileFromString('a', String(i)).send()).commitSha);
    }
    for (let i = 0; i < 4; i += 1) {
      await commit(repo, { targetBranch: `branch${3 - i}`, baseBranch: 'main' }).addFileFromString('b', String(i)).send();
    }
    const commits = [];
    for (let cursor; ;) {
      const page = await repo.listCommits({ limit: 2, cursor });
      commits.push(...page.commits.map((c) => c.sha));
      cursor = page.nextCursor;
      if (!page.hasMore) break;
    }
    assert.deepEqual(commits, made);
    const branches = [];
    for (let cursor; ;) {
      const page = await repo.listBranches({ limit: 2, cursor });
      assert.equal(page.nextCursor, page.branches.at(-1)?.cursor);
      branches.push(...page.branches.map((b) => b.name));
      cursor = page.nextCursor;
      if (!page.hasMore) break;
    }
    assert.deepEqual(branches, ['main', 'branch3', 'branch2', 'branch1', 'branch0']);
    await assert.rejects(repo.listCommits({ cursor: 'nonsense' }), (err) => err instanceof ApiError && err.status === 400);
    await assert.rejects(repo.listCommits({ branch: 'absent' }), (err) => err.status === 404 && /absent/.test(err.message));
  });
});

describe('files', () => {
  test('listing below a folder, flat, in pages', async () => {
    const repo = await store.createRepo({ id: 'files/list' });
    await commit(repo).addFileFromString('a.txt', '1').addFileFromString('dir/b.txt', '2').addFileFromString('dir/sub/c.txt', '3').send();
    assert.deepEqual((await repo.listFiles({ path: 'dir' })).paths, ['dir/b.txt', 'dir/sub/c.txt']);
    const flat = await repo.listFiles({ recursive: false });
    assert.deepEqual(flat.entries.map((e) => [e.path, e.type, e.mode]), [['a.txt', 'blob', '100644'], ['dir', 'tree', '040000']]);
    assert.deepEqual(flat.paths, ['a.txt']);
    const page = await repo.listFiles({ limit: 1 });
    assert.equal(page.hasMore, true);
    const rest = await repo.listFiles({ limit: 100, cursor: page.nextCursor });
    assert.deepEqual([...page.paths, ...rest.paths], ['a.txt', 'dir/b.txt', 'dir/sub/c.txt']);
    const empty = await store.createRepo({ id: 'files/empty' });
    await assert.rejects(empty.listFiles(), (err) => err instanceof ApiError && err.status === 404);
  });

  test('blame', async () => {
    const repo = await store.createRepo({ id: 'files/blame' });
    const first = await commit(repo).addFileFromString('a.txt', 'one\ntwo\nthree\n').send();
    const second = await commit(repo).addFileFromString('a.txt', 'one\n2\nthree\n').send();
    const blame = await repo.getBlame({ path: 'a.txt' });
    assert.equal(blame.commitSha, second.commitSha);
    assert.equal(blame.path, 'a.txt');
    assert.deepEqual(blame.lines.map((l) => l.commitSha), [first.commitSha, second.commitSha, first.commitSha]);
    assert.deepEqual(blame.lines.map((l) => l.originalLineNumber), [1, 2, 3]);
    assert.equal(blame.lines[1].previousCommitSha, first.commitSha);
    assert.equal(blame.lines[1].summary, 'a commit');
    assert.ok(Math.abs(blame.lines[1].authorTime - Date.now()) < 600_000);
    const part = await repo.getBlame({ path: 'a.txt', ref: first.commitSha, ranges: ['/two/,+1', '3'], detectMoves: true });
    assert.deepEqual(part.lines.map((l) => l.lineNumber), [2, 3]);
    await assert.rejects(repo.getBlame({ path: 'a.txt', ranges: ['9'] }), (err) => err instanceof ApiError && err.status === 400);
  });

  test('with their last commits, whole and in pages', async () => {
    const repo = await store.createRepo({ id: 'files/metadata' });
    const first = await commit(repo).addFileFromString('a.txt', '1').addFileFromString('dir/b.txt', '22').send();
    const second = await commit(repo, { commitMessage: 'second\n\nbody\n' })
      .addFileFromString('dir/sub/c.sh', '333', { mode: '100755' }).addFileFromString('link', 'a.txt', { mode: '120000' }).send();
    const told = (list) => list.files.map((f) => [f.path, f.type, f.mode, f.size, f.lastCommitSha]);
    const all = [
      ['a.txt', 'blob', '100644', 1, first.commitSha],
      ['dir/b.txt', 'blob', '100644', 2, first.commitSha],
      ['dir/sub/c.sh', 'blob', '100755', 3, second.commitSha],
      ['link', 'symlink', '120000', 5, second.commitSha],
    ];
    const whole = await repo.listFilesWithMetadata();
    assert.deepEqual(told(whole), all);
    assert.equal(whole.ref, 'main');
    assert.equal(whole.hasMore, false);
    assert.deepEqual(Object.keys(whole.commits).toSorted(), [first.commitSha, second.commitSha].toSorted());
    assert.equal(whole.commits[second.commitSha].message, 'second\n\nbody');
    assert.equal(whole.commits[second.commitSha].author, 'Ada');
    assert.ok(Math.abs(whole.commits[second.commitSha].date - Date.now()) < 600_000);

    const page = await repo.listFilesWithMetadata({ limit: 3, recursive: true });
    assert.equal(page.hasMore, true);
    await commit(repo).addFileFromString('link', 'pushed between two pages').send();
    const rest = await repo.listFilesWithMetadata({ cursor: page.nextCursor });
    assert.deepEqual([...told(page), ...told(rest)], all);
    assert.deepEqual(told(await repo.listFilesWithMetadata({ path: 'dir', ref: first.commitSha })), [all[1]]);

    await commit(repo, { targetBranch: 'spike', baseBranch: 'main', ephemeral: true }).addFileFromString('new', '1').send();
    const spike = await repo.listFilesWithMetadata({ ref: 'spike', ephemeral: true });
    assert.ok(spike.files.some((f) => f.path === 'new'));
    const status = (code) => (err) => err instanceof ApiError && err.status === code;
    await assert.rejects(repo.listFilesWithMetadata({ ref: 'spike' }), status(404));
    await assert.rejects(repo.listFilesWithMetadata({ ref: 'main', ephemeral: true }), status(400));
    await assert.rejects(repo.listFilesWithMetadata({ path: 'absent' }), status(404));
  });

  test('one commit, and the commits of a path', async () => {
    const repo = await store.createRepo({ id: 'files/commit' });
    const first = await commit(repo).addFileFromString('a.txt', '1').addFileFromString('dir/b.txt', '2').send();
    const second = await commit(repo, { commitMessage: 'second' }).addFileFromString('a.txt', '2').send();
    const { commit: told } = await repo.getCommit({ sha: second.commitSha });
    assert.equal(told.sha, second.commitSha);
    assert.deepEqual(told.parentShas, [first.commitSha]);
    assert.equal(told.message, 'second');
    assert.equal(told.signature, undefined);
    assert.equal(told.payload, undefined);
    const { commits } = await repo.listCommits({ path: 'dir' });
    assert.deepEqual(commits.map((c) => c.sha), [first.commitSha]);
    await assert.rejects(repo.getCommit({ sha: zeros }), (err) => err instanceof ApiError && err.status === 404);
    await assert.rejects(repo.getCommit({ sha: 'no commit' }), (err) => err instanceof ApiError && err.status === 400);
  });

  test('ranges and conditions', async () => {
    const repo = await store.createRepo({ id: 'files/ranges' });
    const made = await commit(repo).addFileFromString('ten.txt', '0123456789').send();
    const head = await repo.headFile({ path: 'ten.txt' });
    assert.equal(head.status, 200);
    assert.equal(head.size, 10);
    assert.equal(head.lastCommitSha, made.commitSha);
    assert.equal(head.etag, `"${head.blobSha}"`);
    assert.equal(head.acceptRanges, 'bytes');
    assert.equal(head.contentType, 'application/octet-stream');

    const part = await repo.getFileStream({ path: 'ten.txt', headers: { range: 'bytes=2-4' } });
    assert.equal(part.status, 206);
    assert.equal(part.headers.get('content-range'), 'bytes 2-4/10');
    assert.equal(await part.text(), '234');
    const same = await repo.getFileStream({ path: 'ten.txt', headers: { ifNoneMatch: head.etag } });
    assert.equal(same.status, 304);
    const unchanged = await repo.headFile({ path: 'ten.txt', headers: { ifModifiedSince: head.rawLastModified } });
    assert.equal(unchanged.status, 304);
    const tail = await repo.headFile({ path: 'ten.txt', headers: { range: 'bytes=-3', ifRange: head.etag } });
    assert.equal(tail.status, 206);
    assert.equal(tail.contentRange, 'bytes 7-9/10');
    const other = await repo.getFileStream({ path: 'ten.txt', headers: { ifMatch: `"${zeros}"` } });
    assert.equal(other.status, 412);
    const beyond = await repo.getFileStream({ path: 'ten.txt', headers: { range: 'bytes=20-' } });
    assert.equal(beyond.status, 416);
    assert.equal(beyond.headers.get('content-range'), 'bytes */10');
    await assert.rejects(repo.getFileStream({ path: 'absent' }), (err) => err instanceof ApiError && err.status === 404);
  });
});

describe('diffs', () => {
  test('of a commit, with filters, paths and a base', async () => {
    const repo = await store.createRepo({ id: 'diffs/commits' });
    const lines = 'a line that stays\n'.repeat(20);
    const first = await commit(repo).addFileFromString('a.txt', 'one\ntwo\n').addFileFromString('old.txt', lines).send();
    const second = await commit(repo)
      .addFileFromString('a.txt', 'one\n2\n')
      .addFileFromString('new.txt', `${lines}more\n`)
      .addFileFromString('yarn.lock', 'lock\n')
      .deletePath('old.txt')
      .send();
    const diff = await repo.getCommitDiff({ sha: second.commitSha });
    assert.equal(diff.sha, second.commitSha);
    assert.equal(diff.baseSha, first.commitSha);
    assert.equal(diff.mergeBaseSha, first.commitSha);
    assert.deepEqual(diff.stats, { files: 3, additions: 3, deletions: 1, changes: 4 });
    assert.deepEqual(diff.files.map((f) => [f.path, f.state, f.oldPath, f.additions, f.deletions, f.isEof]), [
      ['a.txt', 'modified', '', 1, 1, true],
      ['new.txt', 'renamed', 'old.txt', 1, 0, true],
    ]);
    assert.match(diff.files[0].raw, /^diff --git a\/a\.txt b\/a\.txt\nindex [0-9a-f]{40}\.\.[0-9a-f]{40} 100644\n/);
    assert.equal(diff.files[0].bytes, diff.files[0].raw.length);
    assert.deepEqual(diff.filteredFiles.map((f) => [f.path, f.state]), [['yarn.lock', 'added']]);

    const one = await repo.getCommitDiff({ sha: second.commitSha, paths: ['yarn.lock', 'a.txt'] });
    assert.deepEqual(one.files.map((f) => f.path), ['a.txt', 'yarn.lock']);
    assert.deepEqual(one.filteredFiles, []);
    const back = await repo.getCommitDiff({ sha: first.commitSha, baseSha: second.commitSha, gitApplyCompatible: true });
    assert.deepEqual(back.stats, { files: 3, additions: 1, deletions: 3, changes: 4 });
    const root = await repo.getCommitDiff({ sha: first.commitSha });
    assert.equal(root.baseSha, undefined);
    assert.deepEqual(root.files.map((f) => f.state), ['added', 'added']);
    await assert.rejects(repo.getCommitDiff({ sha: '1'.repeat(40) }), (err) => err instanceof ApiError && err.status === 404);
  });

  test('of a branch, also an ephemeral one', async () => {
    const repo = await store.createRepo({ id: 'diffs/branches' });
    const root = await commit(repo).addFileFromString('a', '1').send();
    await commit(repo, { targetBranch: 'topic', baseBranch: 'main' }).addFileFromString('b', '2\n').send();
    await commit(repo, { targetBranch: 'spike', baseBranch: 'topic', ephemeral: true }).addFileFromString('c', '3\n').send();
    await commit(repo).addFileFromString('a', 'not of the topic').send();
    const topic = await repo.getBranchDiff({ branch: 'topic' });
    assert.equal(topic.branch, 'topic');
    assert.equal(topic.base, 'main');
    assert.equal(topic.mergeBaseSha, root.commitSha);
    assert.deepEqual(topic.files.map((f) => f.path), ['b']);
    const spike = await repo.getBranchDiff({ branch: 'spike', base: 'topic', ephemeral: true, ephemeralBase: false });
    assert.deepEqual(spike.files.map((f) => f.path), ['c']);
    const back = await repo.getBranchDiff({ branch: 'main', base: 'spike', ephemeralBase: true, paths: ['a'] });
    assert.deepEqual(back.files.map((f) => [f.path, f.state]), [['a', 'modified']]);
    await assert.rejects(repo.getBranchDiff({ branch: 'absent' }), (err) => err instanceof ApiError && err.status === 404);
  });
});

describe('search and archives', () => {
  test('lines that match, with context, filters and pages', async () => {
    const repo = await store.createRepo({ id: 'search/one' });
    const { commitSha } = await commit(repo)
      .addFileFromString('src/a.ts', 'one\n// TODO: first\nthree\n// todo: second\n')
      .addFileFromString('src/b.go', '// TODO: third\n')
      .addFileFromString('vendor/c.ts', '// TODO: fourth\n')
      .send();
    const told = (result) => result.matches.map((f) => [f.path, ...f.lines.map((l) => `${l.lineNumber} ${l.type} ${l.text}`)]);
    const all = await repo.grep({ ref: 'main', query: { pattern: 'TODO', caseSensitive: true }, paths: ['src/'] });
    assert.deepEqual(all.query, { pattern: 'TODO', caseSensitive: true });
    assert.deepEqual(all.repo, { ref: 'main', commit: commitSha });
    assert.deepEqual(told(all), [['src/a.ts', '2 match // TODO: first'], ['src/b.go', '1 match // TODO: third']]);
    assert.equal(all.hasMore, false);
    assert.equal(all.nextCursor, undefined);

    const around = await repo.grep({
      query: { pattern: 'tod[o]', caseSensitive: false },
      fileFilters: { includeGlobs: ['**/*.{ts,js}'], excludeGlobs: ['vendor/**'], extensionFilters: ['.ts'] },
      context: { before: 1, after: 0 },
      limits: { maxMatchesPerFile: 1, maxLines: 10 },
    });
    assert.deepEqual(told(around), [['src/a.ts', '1 context one', '2 match // TODO: first']]);

    const seen = [];
    let cursor;
    do {
      const page = await repo.grep({ query: { pattern: 'TODO' }, pagination: { limit: 1, cursor } });
      assert.equal(page.hasMore, page.nextCursor !== undefined);
      seen.push(...page.matches.map((f) => f.path));
      cursor = page.nextCursor;
    } while (cursor);
    assert.deepEqual(seen, ['src/a.ts', 'src/b.go', 'vendor/c.ts']);
    await assert.rejects(repo.grep({ query: { pattern: '(' } }), (err) => err instanceof ApiError && err.status === 400);
    await assert.rejects(repo.grep({ ref: 'absent', query: { pattern: 'x' } }), (err) => err.status === 404 && /absent/.test(err.message));
  });

  test('archives of all files and of some', async () => {
    const repo = await store.createRepo({ id: 'search/archive' });
    const { treeSha } = await commit(repo)
      .addFileFromString('README.md', '# hello\n')
      .addFileFromString('bin/run', '#!/bin/sh\n', { mode: '100755' })
      .addFileFromString('vendor/big', 'x'.repeat(1000))
      .send();
    const unpack = async (response) => {
      assert.equal(response.status, 200);
      const dir = folder();
      fs.mkdirSync(dir);
      execFileSync('tar', ['-xz', '-C', dir], { input: Buffer.from(await response.arrayBuffer()) });
      return dir;
    };
    const whole = await unpack(await repo.getArchiveStream());
    git(whole, 'init', '-q');
    git(whole, 'add', '-A');
    assert.equal(git(whole, 'write-tree'), treeSha);

    const some = await unpack(await repo.getArchiveStream({
      ref: 'main', includeGlobs: ['README.md', 'vendor/**'], excludeGlobs: ['*.txt'], maxBlobSize: 100, archivePrefix: 'repo/',
    }));
    assert.deepEqual(fs.readdirSync(some, { recursive: true }).toSorted(), ['repo', 'repo/README.md']);
    await assert.rejects(repo.getArchiveStream({ ref: 'absent' }), (err) => err instanceof ApiError && err.status === 404);
    await assert.rejects(repo.getArchiveStream({ archivePrefix: '../up' }), (err) => err instanceof ApiError && err.status === 400);
  });
});

describe('branches, tags and earlier trees', () => {
  const status = (code, words) => (err) => err instanceof ApiError && err.status === code && words.test(err.message);

  test('branches are created, promoted and deleted', async () => {
    const repo = await store.createRepo({ id: 'refs/branches' });
    const first = await commit(repo).addFileFromString('a', '1').send();
    const second = await commit(repo).addFileFromString('a', '2').send();

    const topic = await repo.createBranch({ baseBranch: 'main', targetBranch: 'topic' });
    assert.equal(topic.targetBranch, 'topic');
    assert.equal(topic.targetIsEphemeral, false);
    assert.equal(topic.commitSha, second.commitSha);
    const old = await repo.createBranch({ baseRef: first.commitSha, targetBranch: 'old' });
    assert.equal(old.commitSha, first.commitSha);
    await assert.rejects(repo.createBranch({ baseBranch: 'main', targetBranch: 'topic' }), status(409, /exists/));
    await assert.rejects(repo.createBranch({ baseBranch: 'absent', targetBranch: 'x' }), status(404, /absent/));
    await assert.rejects(repo.createBranch({ baseBranch: 'main', targetBranch: 'a..b' }), status(400, /target_branch/));
    await assert.rejects(
      repo.createBranch({ baseBranch: 'main', targetBranch: 'x', refPolicies: [{ pattern: '*', ops: ['no-push'] }] }),
      status(403, /denied by policy/),
    );

    const spike = await repo.createBranch({ baseBranch: 'topic', targetBranch: 'spike', targetIsEphemeral: true });
    assert.equal(spike.targetIsEphemeral, true);
    const work = await commit(repo, { targetBranch: 'spike', ephemeral: true }).addFileFromString('b', '3').send();
    const promoted = await repo.createBranch({ baseBranch: 'spike', baseIsEphemeral: true, targetBranch: 'spike' });
    assert.equal(promoted.commitSha, work.commitSha);
    const dir = folder();
    git(scratch, 'clone', '-q', '-b', 'spike', await repo.getRemoteURL(), dir);
    assert.equal(git(dir, 'rev-parse', 'HEAD'), work.commitSha);

    assert.equal((await repo.deleteBranch({ name: 'spike', ephemeral: true })).ephemeral, true);
    assert.equal((await repo.deleteBranch({ name: 'old' })).name, 'old');
    await assert.rejects(repo.deleteBranch({ name: 'old' }), status(404, /old/));
    await assert.rejects(repo.deleteBranch({ name: 'main' }), status(409, /default branch/));
    assert.deepEqual((await repo.listBranches()).branches.map((b) => b.name), ['main', 'topic', 'spike']);
    assert.deepEqual((await repo.listBranches({ ephemeral: true })).branches, []);
  });

  test('tags, those of git among them', async () => {
    const repo = await store.createRepo({ id: 'refs/tags' });
    const { commitSha } = await commit(repo).addFileFromString('a', '1').send();
    const made = await repo.createTag({ name: 'v1', target: commitSha });
    assert.equal(made.name, 'v1');
    assert.equal(made.sha, commitSha);
    await assert.rejects(repo.createTag({ name: 'v1', target: commitSha }), status(409, /exists/));
    await assert.rejects(repo.createTag({ name: 'v2', target: 'main' }), status(400, /target/));
    await assert.rejects(repo.createTag({ name: 'v 2', target: commitSha }), status(400, /name/));
    await assert.rejects(repo.createTag({ name: 'v2', target: '1'.repeat(40) }), status(404, /1111/));

    const dir = folder();
    const url = await repo.getRemoteURL();
    git(scratch, 'clone', '-q', url, dir);
    assert.equal(git(dir, 'cat-file', '-t', 'v1'), 'commit');
    git(dir, 'tag', '-a', '-m', 'annotated', 'v0');
    git(dir, 'push', '-q', url, 'v0');
    const first = await repo.listTags({ limit: 1 });
    assert.equal(first.hasMore, true);
    const rest = await repo.listTags({ limit: 1, cursor: first.nextCursor });
    assert.equal(rest.hasMore, false);
    assert.deepEqual([...first.tags, ...rest.tags].map((t) => [t.name, t.sha]), [['v0', commitSha], ['v1', commitSha]]);
    assert.equal((await repo.deleteTag({ name: 'v0' })).name, 'v0');
    await assert.rejects(repo.deleteTag({ name: 'v0' }), status(404, /v0/));
    assert.equal(git(dir, 'ls-remote', '--tags', url), `${commitSha}\trefs/tags/v1`);
  });

  test('the tree of an earlier commit comes back', async () => {
    const repo = await store.createRepo({ id: 'refs/restore' });
    const first = await commit(repo).addFileFromString('a', '1').send();
    const second = await commit(repo).addFileFromString('b', '2').deletePath('a').send();
    const restored = await repo.restoreCommit({
      targetBranch: 'main', targetCommitSha: first.commitSha, author, expectedHeadSha: second.commitSha, commitMessage: 'back',
    });
    assert.equal(restored.treeSha, first.treeSha);
    assert.deepEqual(restored.refUpdate, { branch: 'main', oldSha: second.commitSha, newSha: restored.commitSha });
    assert.deepEqual((await repo.listFiles()).paths, ['a']);
    const { commits } = await repo.listCommits();
    assert.deepEqual(commits.map((c) => c.sha), [restored.commitSha, second.commitSha, first.commitSha]);
    assert.equal(commits[0].message, 'back');

    const fails = (options, reason) => assert.rejects(
      repo.restoreCommit({ targetBranch: 'main', targetCommitSha: first.commitSha, author, ...options }),
      (err) => err instanceof RefUpdateError && err.reason === reason,
    );
    await fails({ expectedHeadSha: second.commitSha }, 'precondition_failed');
    await fails({ targetBranch: 'absent' }, 'not_found');
    await fails({ targetCommitSha: '1'.repeat(40) }, 'not_found');
    await fails({ targetCommitSha: 'main' }, 'invalid');
    await fails({ refPolicies: [{ pattern: 'main', ops: ['no-push'] }] }, 'forbidden');
    await repo.restoreCommit({ targetBranch: 'main', targetCommitSha: second.commitSha, author, refPolicies: [{ pattern: '*', ops: ['no-force-push'] }] });
    assert.deepEqual((await repo.listFiles()).paths, ['b']);
  });
});

describe('merges', () => {
  const rejects = (promise, status, type) => assert.rejects(
    promise, (err) => err instanceof ApiError && err.status === status && (!type || err.body?.conflict_type === type),
  );

  test('merge commits, fast-forwards and squashes, as git sees them', async () => {
    const repo = await store.createRepo({ id: 'merges/clean' });
    const base = await commit(repo).addFileFromString('a', '1\n2\n3\n').send();
    const side = await commit(repo, { targetBranch: 'side', baseBranch: 'main' }).addFileFromString('b', 'b\n').send();
    const options = { sourceBranch: 'side', targetBranch: 'main' };

    assert.equal((await repo.previewMerge(options)).result, 'fast_forward');
    const main = await commit(repo).addFileFromString('c', 'c\n').send();
    const preview = await repo.previewMerge({ ...options, includeContent: true });
    assert.equal(preview.status, 'clean');
    assert.equal(preview.result, 'merge_commit');
    assert.equal(preview.mergeBaseSha, base.commitSha);
    assert.deepEqual([preview.sourceTipSha, preview.targetTipSha, preview.conflictPaths], [side.commitSha, main.commitSha, []]);

    await rejects(repo.merge({ ...options, strategy: 'ff_only' }), 412);
    await rejects(repo.merge({ ...options, strategy: 'merge' }), 400);
    const merged = await repo.merge({ ...options, strategy: 'ff_prefer', commitMessage: 'joined', author, expectedTargetSha: main.commitSha });
    assert.equal(merged.result, 'merge_commit');
    assert.deepEqual(merged.source, { branch: 'side', ephemeral: false, sha: side.commitSha });
    assert.deepEqual(merged.target, { branch: 'main', ephemeral: false, oldSha: main.commitSha, newSha: merged.commitSha });
    assert.deepEqual([merged.mergeBaseSha, merged.promotedCommits], [base.commitSha, 1]);
    assert.deepEqual((await repo.listFiles()).paths, ['a', 'b', 'c']);
    const dir = folder();
    git(scratch, 'clone', '-q', await repo.getRemoteURL(), dir);
    assert.equal(git(dir, 'rev-list', '--parents', '-1', 'HEAD'), `${merged.commitSha} ${main.commitSha} ${side.commitSha}`);
    assert.equal(git(dir, 'rev-parse', 'HEAD^{tree}'), merged.treeSha);
    git(dir, 'fsck', '--strict');

    assert.equal((await repo.merge({ ...options, strategy: 'merge' })).result, 'no_op');
    const forward = await repo.merge({ sourceBranch: 'main', targetBranch: 'side', strategy: 'ff_only' });
    assert.deepEqual([forward.result, forward.commitSha], ['fast_forward', merged.commitSha]);
    await commit(repo, { targetBranch: 'side' }).addFileFromString('d', 'd\n').send();
    const squashed = await repo.merge({ ...options, strategy: 'merge', squash: true, commitMessage: 'one', author });
    assert.equal(squashed.result, 'squash');
    const { commits } = await repo.listCommits();
    assert.deepEqual([commits[0].sha, commits[0].message], [squashed.commitSha, 'one']);
  });

  test('conflicts and expectations', async () => {
    const repo = await store.createRepo({ id: 'merges/conflict' });
    const base = await commit(repo).addFileFromString('a', '1\n').send();
    await commit(repo, { targetBranch: 'side', baseBranch: 'main' }).addFileFromString('a', 'side\n').send();
    await commit(repo).addFileFromString('a', 'main\n').send();
    const options = { sourceBranch: 'side', targetBranch: 'main' };
    const preview = await repo.previewMerge({ ...options, includeContent: true });
    assert.equal(preview.status, 'conflicted');
    assert.deepEqual(preview.conflictPaths, ['a']);
    const [conflict] = preview.conflicts;
    assert.deepEqual([conflict.base.content, conflict.ours.content, conflict.theirs.content], ['1\n', 'main\n', 'side\n']);
    assert.equal(conflict.result.content, '<<<<<<< main\nmain\n=======\nside\n>>>>>>> side\n');
    const merge = { ...options, strategy: 'merge', commitMessage: 'm', author };
    await rejects(repo.merge(merge), 409, 'merge_conflict');
    await rejects(repo.merge({ ...merge, expectedTargetSha: base.commitSha }), 409, 'target_moved');
    await rejects(repo.merge({ ...merge, sourceBranch: 'absent' }), 404);
    await rejects(repo.merge({ ...merge, sourceBranch: 'main' }), 400);
  });
});

describe('notes', () => {
  test('create, append, read, delete, as git sees them', async () => {
    const repo = await store.createRepo({ id: 'notes/one' });
    const { commitSha: sha } = await commit(repo).addFileFromString('a', '1').send();
    const first = await repo.createNote({ sha, note: 'Release QA approved', author });
    assert.equal(first.targetRef, 'refs/notes/commits');
    assert.equal(first.result.success, true);
    await assert.rejects(repo.createNote({ sha, note: 'again' }), (err) => err instanceof RefUpdateError && err.reason === 'conflict');
    await assert.rejects(
      repo.appendNote({ sha, note: 'late', expectedRefSha: sha }),
      (err) => err instanceof RefUpdateError && err.reason === 'precondition_failed' && err.refUpdate.oldSha === first.newRefSha,
    );
    const second = await repo.appendNote({ sha, note: 'Follow-up review complete', expectedRefSha: first.newRefSha });
    assert.equal(second.baseCommit, first.newRefSha);
    const note = await repo.getNote({ sha });
    assert.deepEqual(note, { sha, note: 'Release QA approved\n\nFollow-up review complete', refSha: second.newRefSha });

    const url = await repo.getRemoteURL();
    const dir = folder();
    git(scratch, 'clone', '-q', url, dir);
    git(dir, 'fetch', '-q', 'origin', 'refs/notes/*:refs/notes/*');
    assert.equal(git(dir, 'notes', 'show', sha), note.note);
    git(dir, 'notes', 'append', '-m', 'pushed', sha);
    git(dir, 'push', '-q', url, 'refs/notes/commits');
    assert.match((await repo.getNote({ sha })).note, /\n\npushed$/);

    await repo.deleteNote({ sha });
    await assert.rejects(repo.getNote({ sha }), (err) => err instanceof ApiError && err.status === 404);
    await assert.rejects(repo.deleteNote({ sha }), (err) => err instanceof ApiError && err.status === 404);
  });

  test('other refs, and their list', async () => {
    const repo = await store.createRepo({ id: 'notes/refs' });
    const { commitSha: sha } = await commit(repo).addFileFromString('a', '1').send();
    for (const ref of [undefined, 'reviews/a', 'refs/notes/reviews/b', 'notes/reviews/c']) {
      await repo.createNote({ sha, note: 'LGTM', ref });
    }
    assert.equal((await repo.getNote({ sha, ref: 'reviews/c' })).note, 'LGTM');
    const page = await repo.listNotesRefs({ prefix: 'reviews/', limit: 2 });
    assert.deepEqual([page.refs.map((r) => r.ref), page.hasMore, page.prefix], [['refs/notes/reviews/a', 'refs/notes/reviews/b'], true, 'refs/notes/reviews/']);
    const rest = await repo.listNotesRefs({ prefix: 'reviews/', limit: 2, cursor: page.nextCursor });
    assert.deepEqual([rest.refs.map((r) => r.ref), rest.hasMore], [['refs/notes/reviews/c'], false]);
    assert.equal((await repo.listNotesRefs()).refs.length, 4);
  });
});

describe('commits from patches', () => {
  const patch = (...lines) => [...lines, ''].join('\n');
  const two = patch('diff --git a/hello.txt b/hello.txt', '--- a/hello.txt', '+++ b/hello.txt', '@@ -1 +1,2 @@', ' hello', '+and goodbye');

  test('apply, refuse, leave nothing behind', async () => {
    const repo = await store.createRepo({ id: 'patches/one' });
    const first = await commit(repo).addFileFromString('hello.txt', 'hello\n').send();
    const options = { targetBranch: 'main', commitMessage: 'from a patch', author };
    const second = await repo.createCommitFromDiff({ ...options, diff: two, expectedHeadSha: first.commitSha });
    assert.equal(second.refUpdate.oldSha, first.commitSha);
    assert.equal(await text(await repo.getFileStream({ path: 'hello.txt' })), 'hello\nand goodbye\n');
    await assert.rejects(repo.createCommitFromDiff({ ...options, diff: two }), (err) => err instanceof RefUpdateError && err.reason === 'conflict');
    await assert.rejects(
      repo.createCommitFromDiff({ ...options, diff: two, expectedHeadSha: first.commitSha }),
      (err) => err instanceof RefUpdateError && err.reason === 'precondition_failed',
    );
    const tips = (await repo.listBranches()).branches.map((b) => b.headSha);
    assert.deepEqual(tips, [second.commitSha]);
  });

  test('a patch of git, with bytes that are no text', async () => {
    const repo = await store.createRepo({ id: 'patches/two' });
    await commit(repo).addFileFromString('hello.txt', 'hello\n').send();
    const dir = folder();
    git(scratch, 'clone', '-q', await repo.getRemoteURL(), dir);
    fs.writeFileSync(path.join(dir, 'bytes'), Buffer.from([0, 1, 2, 255, 254, 0, 10]));
    fs.renameSync(path.join(dir, 'hello.txt'), path.join(dir, 'moved.txt'));
    git(dir, 'add', '-A');
    const diff = `${git(dir, 'diff', '--cached', '--binary', '-M')}\n\n`;
    const made = await repo.createCommitFromDiff({ targetBranch: 'side', baseBranch: 'main', commitMessage: 'all kinds', author, diff });
    assert.equal(made.treeSha, git(dir, 'write-tree'));
  });
});

describe('forks', () => {
  test('whole, of a branch, of a commit', async () => {
    const source = await store.createRepo({ id: 'forks/source' });
    const first = await commit(source).addFileFromString('a', '1\n').send();
    const second = await commit(source).addFileFromString('a', '2\n').send();
    await source.createBranch({ baseBranch: 'main', targetBranch: 'side' });
    const whole = await store.createRepo({ id: 'forks/whole', baseRepo: { id: 'forks/source' } });
    assert.deepEqual((await whole.listBranches()).branches.map((b) => [b.name, b.headSha]), [['main', second.commitSha], ['side', second.commitSha]]);
    const old = await store.createRepo({ id: 'forks/old', baseRepo: { id: 'forks/source', sha: first.commitSha } });
    assert.equal(await text(await old.getFileStream({ path: 'a' })), '1\n');
    const later = await commit(old).addFileFromString('b', 'mine\n').send();
    const dir = folder();
    git(scratch, 'clone', '-q', await old.getRemoteURL(), dir);
    assert.deepEqual(git(dir, 'rev-list', 'HEAD').split('\n'), [later.commitSha, first.commitSha]);
    assert.equal(git(dir, 'fsck', '--full', '--strict'), '');
    assert.throws(() => git(dir, 'fetch', '-q', 'origin', second.commitSha)); // the fork does not have it
    const branch = await store.createRepo({ id: 'forks/branch', baseRepo: { id: 'forks/source', ref: 'side' } });
    assert.deepEqual((await branch.listBranches()).branches.map((b) => b.headSha), [second.commitSha]);
    await assert.rejects(store.createRepo({ id: 'forks/whole', baseRepo: { id: 'forks/source' } }));
  });
});

describe('credentials of upstreams', () => {
  test('create, update, delete', async () => {
    const repo = await store.createRepo({ id: 'credentials/one' });
    const { id } = await store.createGitCredential({ repoId: repo.id, username: 'u', password: 'p' });
    assert.ok(id);
    await assert.rejects(store.createGitCredential({ repoId: repo.id, password: 'p' }), /already exists/);
    assert.equal((await store.updateGitCredential({ id, password: 'q' })).id, id);
    await store.deleteGitCredential({ id });
    await assert.rejects(store.updateGitCredential({ id, password: 'q' }), /not found/i);
    await assert.rejects(store.deleteGitCredential({ id }), /not found/i);
  });
});

// until waits for a background operation.
async function until(is) {
  while (!(await is())) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

describe('upstreams', () => {
  const token = async (repo) => (await repo.getRemoteURL()).match(/t:([^@]+)@/)[1];
  const tip = async (repo) => (await repo.listBranches()).branches.find((b) => b.name === 'main')?.headSha;

  // The organization's org.yaml has the other server as the base URL of this provider.
  test('import, changes in both directions, detachment', async () => {
    const url = process.env.PACKHORSE_TEST_UPSTREAM_URL;
    const far = new GitStorage({
      name: org, key: fs.readFileSync(process.env.PACKHORSE_TEST_UPSTREAM_KEY, 'utf8'), apiBaseUrl: url, storageBaseUrl: new URL(url).host,
    });
    const source = await far.createRepo({ id: 'up/stream' });
    const first = await commit(source).addFileFromString('a', '1').send();
    const baseRepo = { provider: 'gitea', owner: 'up', name: 'stream' };
    const repo = await store.createRepo({ id: 'upstreams/one', baseRepo });
    await store.createGitCredential({ repoId: repo.id, username: 't', password: await token(source) });
    await until(async () => (await tip(repo)) === first.commitSha);
    const { repos } = await store.listRepos({ q: 'upstreams/one' });
    assert.deepEqual(repos.map((r) => r.baseRepo), [baseRepo]);

    const ours = await commit(repo).addFileFromString('b', '2').send();
    await until(async () => (await tip(source)) === ours.commitSha);
    const theirs = await commit(source).addFileFromString('c', '3').send();
    await repo.pullUpstream({ ref: 'main' });
    await until(async () => (await tip(repo)) === theirs.commitSha);
    assert.deepEqual((await repo.listFiles()).paths, ['a', 'b', 'c']);

    const detached = await fetch(`${base}/api/v1/repos/base`, { method: 'DELETE', headers: { Authorization: `Bearer ${await token(repo)}` } });
    assert.equal(detached.status, 200);
    assert.equal((await store.listRepos({ q: 'upstreams/one' })).repos[0].baseRepo, undefined);
    await assert.rejects(repo.pullUpstream(), (err) => err instanceof ApiError && err.status === 409);
  });

  test('GitHub without an app, and a private address', async () => {
    await assert.rejects(store.createRepo({ id: 'upstreams/app', baseRepo: { owner: 'o', name: 'n' } }), (err) => err instanceof ApiError && err.status === 412);
    await assert.rejects(store.createRepo({ id: 'upstreams/host', baseRepo: { provider: 'gitlab', owner: 'o', name: 'n', upstreamHost: '10.0.0.1' } }), /private/);
  });
});

describe('git by the URLs of the client', () => {
  test('push, clone, and the same repository through the API', async () => {
    const repo = await store.createRepo({ id: 'urls/main' });
    const url = await repo.getRemoteURL({ ttl: 600 });
    const dir = folder();
    git(scratch, 'init', '-q', '-b', 'main', dir);
    fs.writeFileSync(path.join(dir, 'pushed.txt'), 'pushed\n');
    git(dir, 'add', '.');
    git(dir, 'commit', '-q', '-m', 'pushed');
    git(dir, 'push', '-q', url, 'main');
    assert.equal(await text(await repo.getFileStream({ path: 'pushed.txt' })), 'pushed\n');
    const { commitSha } = await commit(repo).addFileFromString('api.txt', 'api\n').send();
    git(dir, 'pull', '-q', url, 'main');
    assert.equal(git(dir, 'rev-parse', 'HEAD'), commitSha);

    const readOnly = await repo.getRemoteURL({ permissions: ['git:read'] });
    git(dir, 'commit', '-q', '--allow-empty', '-m', 'more');
    assert.throws(() => git(dir, 'push', '-q', readOnly, 'main'), /403/);
  });

  test('the ephemeral namespace', async () => {
    const repo = await store.createRepo({ id: 'urls/ephemeral' });
    await commit(repo).addFileFromString('a', '1').send();
    const spike = await commit(repo, { targetBranch: 'spike', baseBranch: 'main', ephemeral: true }).addFileFromString('b', '2').send();
    const url = await repo.getEphemeralRemoteURL();
    const dir = folder();
    git(scratch, 'clone', '-q', '-b', 'spike', url, dir);
    assert.equal(git(dir, 'rev-parse', 'HEAD'), spike.commitSha);
    git(dir, 'checkout', '-q', '-b', 'pushed');
    git(dir, 'commit', '-q', '--allow-empty', '-m', 'pushed');
    git(dir, 'push', '-q', url, 'pushed');
    assert.deepEqual((await repo.listBranches({ ephemeral: true })).branches.map((b) => b.name), ['spike', 'pushed']);
    assert.deepEqual((await repo.listBranches()).branches.map((b) => b.name), ['main']);
    assert.equal(git(dir, 'ls-remote', '--heads', await repo.getRemoteURL()).split('\n').length, 1);
  });

  test('import takes pushes only', async () => {
    const repo = await store.createRepo({ id: 'urls/import' });
    const url = await repo.getImportRemoteURL();
    const dir = folder();
    git(scratch, 'init', '-q', '-b', 'main', dir);
    git(dir, 'commit', '-q', '--allow-empty', '-m', 'history');
    git(dir, 'push', '-q', url, 'main');
    assert.deepEqual((await repo.listBranches()).branches.map((b) => b.name), ['main']);
    assert.throws(() => git(dir, 'ls-remote', url), /403/);
  });

  test('policies of the token', async () => {
    const repo = await store.createRepo({ id: 'urls/policies' });
    await commit(repo).addFileFromString('a', '1').send();
    const guarded = await repo.getRemoteURL({ refPolicies: [{ pattern: 'main', ops: ['no-push'] }, { pattern: '*' }] });
    const dir = folder();
    git(scratch, 'clone', '-q', guarded, dir);
    git(dir, 'commit', '-q', '--allow-empty', '-m', 'more');
    assert.throws(() => git(dir, 'push', '-q', guarded, 'main'), /denied by policy/);
    git(dir, 'push', '-q', guarded, 'main:refs/heads/open');
    await assert.rejects(
      commit(repo, { refPolicies: [{ pattern: 'main', ops: ['no-push'] }] }).addFileFromString('a', '2').send(),
      (err) => err instanceof RefUpdateError && /denied by policy/.test(err.message),
    );
    const forced = await repo.getRemoteURL({ ops: ['no-force-push'] });
    git(dir, 'commit', '-q', '--amend', '--allow-empty', '-m', 'rewritten');
    assert.throws(() => git(dir, 'push', '-q', '--force', forced, 'HEAD:refs/heads/open'), /denied by policy/);
  });
});

describe('webhooks', () => {
  test('push events are what the client takes for valid', async () => {
    const secret = 'whsec-\u00e9';
    const heard = [];
    const receiver = http.createServer((request, response) => {
      const chunks = [];
      request.on('data', (chunk) => chunks.push(chunk));
      request.on('end', () => {
        heard.push({ url: request.url, headers: request.headers, body: Buffer.concat(chunks) });
        response.end();
      });
    });
    await new Promise((resolve) => receiver.listen(0, '127.0.0.1', resolve));
    const config = path.join(process.env.PACKHORSE_TEST_ORG_FOLDER, 'org.yaml');
    fs.writeFileSync(`${config}.new`, `webhooks: [{url: "http://127.0.0.1:${receiver.address().port}/hook?a=b", secret: "${secret}", events: [push]}]\n`);
    fs.renameSync(`${config}.new`, config);
    const [program, ...args] = JSON.parse(process.env.PACKHORSE_TEST_ORG_APPLY);
    if (program) execFileSync(program, args); // the organizations are rows, and follow no folder
    try {
      const repo = await store.createRepo({ id: 'hooks/one' });
      const commits = [zeros];
      while (heard.length === 0) { // the configuration takes effect within two seconds
        commits.push((await commit(repo).addFileFromString('a', String(commits.length)).send()).commitSha);
        await sleep(100);
      }
      const [{ url, headers, body }] = heard;
      assert.equal(url, '/hook?a=b');
      const result = await validateWebhook(body, headers, secret);
      assert.equal(result.error, undefined);
      assert.equal(result.valid, true);
      assert.equal(result.eventType, 'push');
      const { payload } = result;
      assert.equal(payload.type, 'push');
      assert.equal(payload.repository.url, 'hooks/one');
      assert.match(payload.repository.id, /^[0-9a-f-]{36}$/);
      assert.equal(payload.ref, 'refs/heads/main');
      assert.equal(payload.customerId, org);
      assert.equal(payload.before, commits[commits.indexOf(payload.after) - 1]);
      assert.ok(Math.abs(payload.pushedAt.getTime() - Date.now()) < 600_000);
      assert.equal((await validateWebhook(body, headers, 'another')).valid, false);
      assert.equal((await validateWebhook(`${body} `, headers, secret)).valid, false);
    } finally {
      fs.rmSync(config);
      receiver.closeAllConnections();
      receiver.close();
    }
  });
});

describe('refusals', () => {
  test('missing scope, another repository, a foreign key', async () => {
    const repo = await store.createRepo({ id: 'refused/one' });
    await commit(repo).addFileFromString('a', '1').send();
    const reader = (await repo.getRemoteURL({ permissions: ['git:read'] })).match(/t:([^@]+)@/)[1];
    const limited = new GitStorage({ name: org, token: reader, apiBaseUrl: base });
    await assert.rejects(commit(limited.repo({ id: 'refused/one' })).addFileFromString('a', '2').send(), { reason: 'unauthorized' });
    await assert.rejects(limited.listRepos(), (err) => err instanceof ApiError && err.status === 401);
    await assert.rejects(limited.deleteRepo({ id: 'refused/one' }), (err) => err instanceof ApiError && err.status === 403);
    const broken = new GitStorage({ name: org, token: `${reader}x`, apiBaseUrl: base });
    await assert.rejects(broken.repo({ id: 'refused/one' }).listFiles(), (err) => err instanceof ApiError && err.status === 401);
  });
});
