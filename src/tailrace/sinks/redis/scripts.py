"""What runs in the Redis server, each script as a whole or not at all: so each change comes once.

    app.shop.orders                 the stream: an entry for each change
    {app.shop.orders}:tailrace      hash: `stream`, who writes; `batch`, the last batch that was begun;
                                    `lease`, the newest one under which it was written (`sinks.lease`)
    {app.shop.orders}:tailrace:sent set: what the stream has of that batch (`outgoing.identities`)

The braces put the three into one slot of a cluster. An entry is added only if its identity is new in the
set, and only by the newest batch: neither a batch that comes again nor a task that outlived its batch adds an
entry twice. Nor does the task of an owner that has lost its lease.
"""

from __future__ import annotations

#: How errors of the scripts begin.
OWNER, LATER, GONE, LEASE = "TAILRACE_OWNER", "TAILRACE_LATER", "TAILRACE_GONE", "TAILRACE_LEASE"

#: Refuse an owner with an older lease than the noted one, and note a newer one.
_FENCE = f"""
local lease = tonumber(ARGV[3])
local noted = tonumber(redis.call('HGET', KEYS[2], 'lease') or '0')
if lease > 0 and lease < noted then
  return redis.error_reply('{LEASE} ' .. string.format('%d %d', noted, lease) .. ' ' .. KEYS[1])
end
if lease > noted then redis.call('HSET', KEYS[2], 'lease', ARGV[3]) end
"""

#: Whether the stream is there, and is the writer's. KEYS: stream, hash, set. ARGV: who writes, the batch, the
#: lease or 0.
CHECK = f"""
local owner = redis.call('HGET', KEYS[2], 'stream')
if owner ~= ARGV[1] then return redis.error_reply('{OWNER} ' .. (owner or '-')) end
if redis.call('EXISTS', KEYS[1]) == 0 then return redis.error_reply('{GONE} ' .. KEYS[1]) end
{_FENCE}return 0
"""

#: Create the stream. KEYS, ARGV: as of `CHECK`.
CREATE = f"""
local owner = redis.call('HGET', KEYS[2], 'stream')
if owner and owner ~= ARGV[1] then return redis.error_reply('{OWNER} ' .. owner) end
local exists = redis.call('EXISTS', KEYS[1]) == 1
if exists and not owner then return redis.error_reply('{OWNER} -') end
{_FENCE}if exists then return 0 end
redis.call('XGROUP', 'CREATE', KEYS[1], 'tailrace', '$', 'MKSTREAM')
redis.call('XGROUP', 'DESTROY', KEYS[1], 'tailrace')
redis.call('UNLINK', KEYS[3])
redis.call('HSET', KEYS[2], 'stream', ARGV[1])
return 1
"""

#: KEYS: as of `CHECK`. ARGV: as of `CHECK`, then most entries of the stream or 0, then for each message its
#: identity, table, op, seq, key and value. A message without a key has an empty one.
APPEND = f"""
local owner = redis.call('HGET', KEYS[2], 'stream')
if owner ~= ARGV[1] then return redis.error_reply('{OWNER} ' .. (owner or '-')) end
if redis.call('EXISTS', KEYS[1]) == 0 then return redis.error_reply('{GONE} ' .. KEYS[1]) end
{_FENCE}local last = tonumber(redis.call('HGET', KEYS[2], 'batch') or '-1')
local batch = tonumber(ARGV[2])
if last > batch then return redis.error_reply('{LATER} ' .. last) end
if last < batch then
  redis.call('UNLINK', KEYS[3])
  redis.call('HSET', KEYS[2], 'batch', ARGV[2])
end
local added = 0
for at = 5, #ARGV, 6 do
  if redis.call('SADD', KEYS[3], ARGV[at]) == 1 then
    redis.call('XADD', KEYS[1], '*', 'table', ARGV[at + 1], 'op', ARGV[at + 2], 'seq', ARGV[at + 3],
      'key', ARGV[at + 4], 'value', ARGV[at + 5])
    added = added + 1
  end
end
if ARGV[4] ~= '0' then redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[4]) end
return added
"""

#: Forget what the stream has of earlier batches. KEYS, ARGV: as of `CHECK`.
ADVANCE = f"""
if redis.call('HGET', KEYS[2], 'stream') ~= ARGV[1] then return 0 end
{_FENCE}if tonumber(redis.call('HGET', KEYS[2], 'batch') or '-1') >= tonumber(ARGV[2]) then return 0 end
redis.call('UNLINK', KEYS[3])
redis.call('HSET', KEYS[2], 'batch', ARGV[2])
return 1
"""


def keys(stream: str) -> tuple[str, str, str]:
    """The keys of a stream, of the hash beside it, and of the set."""
    beside = f"{{{stream}}}:tailrace"
    return stream, beside, f"{beside}:sent"
