-- purpose: jobs of flows, and follow-ups: read, checked, and admitted all or not at all (section 7).
-- defines: read_nodes, admit_nodes
-- A node: above, name, policy, kids, queue, id; then of this queue: priority, due, ends, dedup, rule, lane, count, and the
-- names and values of so many fields; of another: what is sent there, packed.
local MOST_NODES, MOST_NAME = 256, 128
local function check(words, node, nodes, spawner)
  local at = node.at
  local above = tonumber(node.above)
  if above then
    local fits = above % 1 == 0 and above <= #nodes and above >= (spawner and 0 or 1)
    if not fits or above > 0 and not nodes[above].kids then return 'parent ' .. node.above end --!guard node-parent
  elseif node.above ~= '' and (spawner or #node.above < 14) then --!guard node-above
    return 'parent ' .. node.above
  end
  local named = node.name ~= '' and #node.name <= MOST_NAME and not string.find(node.name, '%c')
  if node.above ~= '' and not named then return 'name ' .. node.name end --!guard node-name
  if not string.find('fird', node.policy, 1, true) or #node.policy ~= 1 then return 'policy ' .. node.policy end --!guard node-policy
  if node.queue ~= '' then return nil end
  node.priority = whole(words[at + 6], -2047, 2047)
  if not node.priority then return 'priority ' .. words[at + 6] end --!guard node-priority
  node.due = words[at + 7] == '0' and 0 or moment_of(words[at + 7])
  if not node.due then return 'due ' .. words[at + 7] end --!guard node-due
  if words[at + 8] ~= '' and not (ends(words[at + 8]) or {})[1] then return 'ends ' .. words[at + 8] end --!guard node-ends
  node.dedup, node.window, node.lane = words[at + 9], whole(words[at + 10], 0, LONGEST), words[at + 11]
  if not node.window then return 'rule ' .. words[at + 10] end --!guard node-rule
  if node.lane ~= '' and not lane_fits(node.lane) then return 'lane ' .. node.lane end --!guard node-lane
  return nil
end
-- Answers the nodes that stand in `words` from `at` on, or nil and what is wrong with one.
local function read_nodes(words, at, spawner)
  local nodes, names = {}, {}
  while at <= #words do
    local node = {
      at = at, above = words[at], name = words[at + 1], policy = words[at + 2], kids = words[at + 3] == '1',
      queue = words[at + 4], id = words[at + 5],
    }
    local n = #nodes + 1
    local wrong = (n > MOST_NODES or not words[at + 6]) and 'node ' .. n --!bound nodes
    if not wrong and node.queue == '' then
      local fields = whole(words[at + 12] or '', 0, 64)
      if fields and at + 12 + 2 * fields <= #words then --!guard node-whole
        node.first, node.last = at + 13, at + 12 + 2 * fields
        at = node.last + 1
      else
        wrong = 'node ' .. n
      end
    else
      at = at + 7
    end
    wrong = wrong or check(words, node, nodes, spawner)
    local named = not wrong and node.above ~= '' and node.above .. ' ' .. node.name
    if names[named] then wrong = 'name ' .. node.name end --!guard node-twice
    if wrong then return nil, 'EMQKIND ' .. wrong end
    if named then names[named] = true end
    nodes[n] = node
  end
  return nodes
end

-- Says of each node what becomes of it; answers a refusal of all, or the root that keeps all out.
local function judge(nodes, how)
  local ids, seen, keys = {}, {}, {}
  for n, node in ipairs(nodes) do
    local above = tonumber(node.above)
    if above and above > 0 and nodes[above].verdict then --!guard node-below
      node.verdict = 'skipped'
    elseif above == 0 then
      local known = call('HGET', row_key(how.spawner) .. ':children', node.name)
      if known then --!guard known
        local result = call('HGET', row_key(how.spawner) .. ':results', node.name)
        local kind = result and string.match(result, '^%S+')
        node.verdict = 'known ' .. string.match(known, LINK.child) .. (kind and ' ' .. kind or '')
      end
    end
    if not node.verdict and node.queue == '' then
      if seen[node.id] then return 'EMQSTATE collision ' .. node.id end --!guard node-twins
      seen[node.id] = true
      ids[#ids + 1] = row_key(node.id)
      local dedup = node.dedup
      local holder = dedup ~= '' and (keys[dedup] or held_by(dedup, node.id))
      if holder then --!guard node-duplicate
        node.verdict, node.holder = 'duplicate ' .. holder, holder
        if how.strict and node.above == '' then return nil, n end --!guard root-duplicate
      elseif dedup ~= '' then
        keys[dedup] = node.id
      end
    end
  end
  if #ids > 0 and call('EXISTS', unpack(ids)) > 0 then --!guard node-collision
    for _, key in ipairs(ids) do
      if call('EXISTS', key) == 1 then return 'EMQSTATE collision ' .. string.sub(key, #P + 5) end
    end
  end
  return nil
end

-- Pairs of words for one command a key, gathered and run together.
local function gather(calls, key, a, b)
  local words = calls[key]
  if words then
    local count = #words
    words[count + 1], words[count + 2] = a, b
  else
    calls[key] = { a, b }
  end
end
local function also(row, name, value)
  local count = #row
  row[count + 1], row[count + 2] = name, value
end
-- The row of a job of this queue; answers its set and score.
local function write_row(words, node, hold)
  local set, score = lane_set(node.lane), -node.priority
  if hold or node.kids then
    set, score = 'waiting', NOW
  elseif node.due > NOW then
    set, score = 'schedule', node.due
    watch(P .. 'schedule', node.due)
  end
  if node.lane ~= '' then begin_rota() end --!guard node-first-lane
  local row = { 'state', (set == 'waiting' or set == 'schedule') and set or 'pending', 'since', NOW, 'by', CLIENT }
  if node.lane ~= '' then also(row, 'lane', node.lane) end --!write node-lane
  if node.parent and node.policy ~= 'd' then also(row, 'parent', node.parent .. ' ' .. node.parent_queue .. ' ' .. node.name) end --!write node-parent
  if node.kids then also(row, 'children', 1) end --!write node-kids
  if set == 'waiting' and node.due > NOW then also(row, 'due_ms', node.due) end --!write node-due
  if hold then also(row, 'hold', hold) end --!write node-hold
  local count = #row - node.first + 1
  for i = node.first, node.last do
    row[count + i] = words[i]
  end
  if words[node.at + 8] ~= '' then --!write node-ends
    for _, word in ipairs(ends(words[node.at + 8])) do
      row[#row + 1] = word
    end
  end
  call('HSET', row_key(node.id), unpack(row)) --!write node-row
  if node.dedup ~= '' then
    if node.window > 0 then
      call('SET', P .. 'dedup:' .. node.dedup, node.id, 'PX', node.window) --!write node-dedup-window
    else
      call('SET', P .. 'dedup:' .. node.dedup, node.id) --!write node-dedup
    end
  end
  return set, score
end
local function write(words, nodes, how)
  local links, results, sets, held, ready = {}, {}, {}, {}, {}
  for _, node in ipairs(nodes) do
    local above = tonumber(node.above)
    local parent, queue = nil, ''
    if above then
      parent = above == 0 and how.spawner or nodes[above].id
    elseif node.above ~= '' then
      parent, queue = string.match(node.above .. ' ', '^(%S+) (%S*)')
    end
    node.parent, node.parent_queue = parent, queue
    if parent and queue == '' and (not node.verdict or node.holder) then
      gather(links, row_key(parent) .. ':children', node.name, node.id .. ' ' .. node.policy .. ' ' .. node.queue) --!write link
      if node.policy == 'd' then gather(results, row_key(parent) .. ':results', node.name, outcome('detached', '0', '', '')) end --!guard detached
    end
    if not node.verdict and node.queue == '' then
      local set, score = write_row(words, node, how.hold)
      gather(sets, set, score, node.id) --!write node-enter
      held[#held + 1] = node.id
      if set ~= 'waiting' and set ~= 'schedule' then ready[#ready + 1] = node.lane end
    elseif not node.verdict then
      owe(how.hold and '+inf' or NOW, 'add:' .. node.id, 'add', node.queue, words[node.at + 6]) --!write node-owed
      held[#held + 1] = 'add:' .. node.id
    end
  end
  for key, pairs_of in pairs(links) do
    call('HSET', key, unpack(pairs_of))
  end
  for key, pairs_of in pairs(results) do
    call('HSET', key, unpack(pairs_of))
  end
  if how.hold and #held > 0 then call('RPUSH', row_key(how.hold) .. ':held', unpack(held)) end --!write held
  for set, scored in pairs(sets) do
    local come = call('ZADD', P .. set, unpack(scored))
    if string.sub(set, 1, 5) == 'lane:' then laned = laned + come end --!write node-laned
  end
  for _, lane in ipairs(ready) do
    if ROTA then
      touch(lane, 1) --!write node-touch
    else
      made_ready = made_ready + 1 --!write node-ready
    end
  end
  for _, node in ipairs(nodes) do
    if not node.verdict and node.queue == '' then emit('enqueued', node.id) end
  end
  if how.hold then --!guard hold-added
    owe(how.last and NOW or NOW + 60000, 'hold:' .. how.hold, 'hold', '', how.hold, how.last and 'release' or 'wait') --!write hold
  end
end
-- Should the server refuse a part (a right the user lacks), the rest must not stay.
local function undo(nodes, how)
  for _, node in ipairs(nodes) do
    if not node.verdict then
      local held = node.id
      if node.queue == '' then
        local key = row_key(node.id)
        for _, set in ipairs({ 'waiting', 'schedule', lane_set(node.lane) }) do
          pcall(call, 'ZREM', P .. set, node.id) --!write undo-place
        end
        local dedup = P .. 'dedup:' .. node.dedup
        if node.dedup ~= '' and redis.pcall('GET', dedup) == node.id then pcall(call, 'DEL', dedup) end --!write undo-dedup
        pcall(call, 'DEL', key, key .. ':children', key .. ':results') --!write undo-row
      else
        held = 'add:' .. node.id
        pcall(strike, held) --!write undo-owed
      end
      if how.hold then pcall(call, 'LREM', row_key(how.hold) .. ':held', -1, held) end --!write undo-held
    end
    if node.parent and node.parent_queue == '' and (not node.verdict or node.holder) then
      pcall(call, 'HDEL', row_key(node.parent) .. ':children', node.name) --!write undo-link
      if node.policy == 'd' then pcall(call, 'HDEL', row_key(node.parent) .. ':results', node.name) end --!write undo-detached
    end
  end
end
-- Admits them all, or none. `how`: the running job that spawns them, the root of a flow that is added in rounds (`hold`),
-- whether that was the last round (`last`), whether a root's dedup key that is taken keeps all out (`strict`). Answers their verdicts, or nil and a refusal.
local function admit_nodes(words, nodes, how)
  local refusal, root = judge(nodes, how)
  if refusal then return nil, refusal end
  local verdicts = {}
  if root then
    for n, node in ipairs(nodes) do
      verdicts[n] = n == root and node.verdict or 'skipped'
    end
    return verdicts
  end
  if not FLOWS then --!guard begin-flows
    call('HSET', META, 'protocol', VERSION, 'flows', 1) --!write begin-flows
    FLOWS, meta[1] = '1', VERSION
  end
  local fine, problem = pcall(write, words, nodes, how)
  if not fine then --!guard nodes-refused
    undo(nodes, how)
    error(problem)
  end
  for n, node in ipairs(nodes) do
    verdicts[n] = node.verdict or 'admitted'
    if node.holder and node.parent then --!guard duplicate-told
      local text = outcome('duplicate', '0', 'its dedup key is held by ' .. node.holder, '')
      if node.parent_queue == '' then
        receive(node.parent, node.name, node.id, text)
      else
        owe(NOW, 'tell:' .. node.id, 'tell', node.parent_queue, node.parent, node.id, node.name, text) --!write duplicate-owed
      end
    end
  end
  -- One that was told to have children, and has none, waits for nothing.
  for n = #nodes, 1, -1 do
    local node = nodes[n]
    if node.kids and not node.verdict and not how.hold and call('HGET', row_key(node.id), 'state') == 'waiting' then consider(node.id) end --!guard childless
  end
  return verdicts
end
