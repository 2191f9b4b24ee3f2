// Uploads bodies with Node's fetch that the server refuses at once, and prints status and body of
// each answer as a line of JSON.
// Usage: node refused.mjs URL TOKEN COUNT
const [url, token, count] = process.argv.slice(2);
const piece = new Uint8Array(256 * 1024).fill(32);

for (let i = 0; i < Number(count); i += 1) {
  let left = 64; // 16 MiB, in chunks of unknown total
  const body = new ReadableStream({
    pull(controller) {
      if (left === 0) {
        controller.close();
        return;
      }
      left -= 1;
      controller.enqueue(piece);
    },
  });
  const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/x-ndjson' };
  const response = await fetch(url, { method: 'POST', headers, body, duplex: 'half' });
  console.log(JSON.stringify([response.status, await response.json()]));
}
