-- purpose: the outbox: what this queue has to tell another one, or itself in bounded steps (section 7).
-- defines: OUTBOX, ENTRIES, PATIENCE, taken_at, owed_at, words_of, pack, owe, strike, outcome
-- An entry that somebody has taken has a score with a fraction, which no other has. It keeps one for as long as it is
-- there: it may have been handed over, whatever its taker has heard.
local OUTBOX, ENTRIES = P .. 'outbox', P .. 'outbox:entries'
local function taken_at(moment)
  return string.format('%.0f.5', moment)
end
-- For how long a parent waits before it asks after its children, ms: news can be lost, when a server forgets its last writes.
local PATIENCE = 60000
-- When there is something to do: an entry is due, or a parent has waited for long.
local function owed_at()
  local head = tonumber(call('ZRANGE', OUTBOX, 0, 0, 'WITHSCORES')[2]) or math.huge
  local waits = tonumber(call('ZRANGE', P .. 'waiting', 0, 0, 'WITHSCORES')[2]) or math.huge
  return math.min(head, waits + PATIENCE)
end
-- Words as one: each as four bytes of its length and its bytes.
local function words_of(blob)
  local words, at = {}, 1
  while at <= #blob do
    words[#words + 1], at = struct.unpack('>I4c0', blob, at)
  end
  return words
end
local function pack(...)
  local words = { ... }
  for i = 1, #words do
    local word = tostring(words[i])
    words[i] = struct.pack('>I4', #word) .. word
  end
  return table.concat(words)
end
-- Writes an entry, to be taken at a moment; one of that name is replaced.
local function owe(moment, entry, ...)
  if moment ~= '+inf' then watch(OUTBOX, moment) end
  call('HSET', ENTRIES, entry, pack(...)) --!write owe
  call('ZADD', OUTBOX, moment, entry) --!write owe-due
end
local function strike(entry)
  -- In this order: what says nothing keeps nobody waiting, and goes with whoever takes it.
  call('HDEL', ENTRIES, entry) --!write strike-entry
  call('ZREM', OUTBOX, entry) --!write strike
end
-- How a job ended, as its parent keeps it.
local function outcome(kind, token, reason, body)
  return kind .. ' ' .. string.format('%.0f', NOW) .. ' ' .. token .. ' ' .. (string.gsub(reason, '[\r\n]', ' ')) .. '\n' .. body
end
