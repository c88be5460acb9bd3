-- purpose: jobs of flows, and follow-ups: read, checked, and admitted all or not at all (section 7).
-- defines: words_of, read_nodes, admit_nodes
-- A node: above, name, policy, kids, queue, id; then of this queue: priority, due, ends, dedup, rule, lane, count, and the
-- names and values of so many fields; of another: what is sent there, packed.
local MOST_NODES, MOST_NAME = 256, 128
local function words_of(blob)
  local words, at = {}, 1
  while at <= #blob do
    words[#words + 1], at = struct.unpack('>I4c0', blob, at)
  end
  return words
end
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
    local named = node.above .. ' ' .. node.name
    if not wrong and node.above ~= '' and names[named] then wrong = 'name ' .. node.name end --!guard node-twice
    if wrong then return nil, 'EMQKIND ' .. wrong end
    names[named] = true
    nodes[n] = node
  end
  return nodes
end

-- Who has the dedup key, if that keeps another job out.
local function held_by(key)
  local holder = call('GET', P .. 'dedup:' .. key)
  if not holder then return nil end
  local state = call('HGET', row_key(holder), 'state')
  if call('PTTL', P .. 'dedup:' .. key) > 0 or state and state ~= 'dead' and state ~= 'done' then return holder end --!guard node-dedup
  return nil
end
-- Says of each node what becomes of it; answers a refusal of all.
local function judge(nodes, how)
  local keys, seen = {}, {}
  for n, node in ipairs(nodes) do
    local above = tonumber(node.above)
    local over = above and above > 0 and nodes[above].verdict
    if over then --!guard node-below
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
      local key = row_key(node.id)
      if seen[key] or call('EXISTS', key) == 1 then return 'EMQSTATE collision ' .. node.id end --!guard node-collision
      seen[key] = true
      local dedup = node.dedup
      if dedup ~= '' then
        local holder = keys[dedup] or held_by(dedup)
        if holder then --!guard node-duplicate
          node.verdict, node.holder = 'duplicate ' .. holder, holder
          if how.strict and node.above == '' then return nil, n end --!guard root-duplicate
        else
          keys[dedup] = node.id
        end
      end
    end
  end
  return nil
end

local made -- what has been written, should the server refuse the rest
local function undo()
  for i = #made, 1, -1 do
    pcall(call, unpack(made[i])) --!write node-undo
  end
end
local function link(node, parent, queue)
  if queue ~= '' or not parent then return end
  local key = row_key(parent)
  made[#made + 1] = { 'HDEL', key .. ':children', node.name }
  call('HSET', key .. ':children', node.name, node.id .. ' ' .. node.policy .. ' ' .. node.queue) --!write link
  if node.policy == 'd' then --!guard detached
    made[#made + 1] = { 'HDEL', key .. ':results', node.name }
    call('HSET', key .. ':results', node.name, outcome('detached', '0', '', '')) --!write detached
  end
end
local function write_local(words, node, parent, queue, hold)
  local set, score = lane_set(node.lane), -node.priority
  if hold or node.kids then
    set, score = 'waiting', NOW
  elseif node.due > NOW then
    set, score = 'schedule', node.due
    watch(P .. 'schedule', node.due)
  end
  if node.lane ~= '' then begin_rota() end --!guard node-first-lane
  local key = row_key(node.id)
  local state = (set == 'waiting' or set == 'schedule') and set or 'pending'
  made[#made + 1] = { 'DEL', key, key .. ':children', key .. ':results' }
  local row = { 'state', state, 'since', NOW, 'by', CLIENT }
  local function also(name, value)
    row[#row + 1], row[#row + 2] = name, value
  end
  if node.lane ~= '' then also('lane', node.lane) end --!write node-lane
  if parent and node.policy ~= 'd' then also('parent', parent .. ' ' .. queue .. ' ' .. node.name) end --!write node-parent
  if node.kids then also('children', 1) end --!write node-kids
  if set == 'waiting' and node.due > NOW then also('due_ms', node.due) end --!write node-due
  if hold then also('hold', hold) end --!write node-hold
  call('HSET', key, unpack(row)) --!write node-row
  call('HSET', key, unpack(words, node.first, node.last)) --!write node-fields
  if words[node.at + 8] ~= '' then call('HSET', key, unpack(ends(words[node.at + 8]))) end --!write node-ends
  if node.dedup ~= '' then
    made[#made + 1] = { 'DEL', P .. 'dedup:' .. node.dedup }
    if node.window > 0 then
      call('SET', P .. 'dedup:' .. node.dedup, node.id, 'PX', node.window) --!write node-dedup-window
    else
      call('SET', P .. 'dedup:' .. node.dedup, node.id) --!write node-dedup
    end
  end
  made[#made + 1] = { 'ZREM', P .. set, node.id }
  local come = call('ZADD', P .. set, score, node.id) --!write node-enter
  if state == 'pending' then
    if node.lane ~= '' then laned = laned + come end --!write node-laned
    if ROTA then
      touch(node.lane, 1) --!write node-touch
    else
      made_ready = made_ready + 1 --!write node-ready
    end
  end
  emit('enqueued', node.id)
end
local function write(words, nodes, how)
  for _, node in ipairs(nodes) do
    local above = tonumber(node.above)
    local parent, queue = nil, ''
    if above then
      parent = above == 0 and how.spawner or nodes[above].id
    elseif node.above ~= '' then
      parent, queue = string.match(node.above .. ' ', '^(%S+) (%S*)')
    end
    node.parent, node.parent_queue = parent, queue
    if not node.verdict or node.holder then
      link(node, parent, queue)
    end
    if not node.verdict then
      local held = how.hold and node.id
      if node.queue == '' then
        write_local(words, node, parent, queue, how.hold)
      else
        made[#made + 1] = { 'ZREM', P .. 'outbox', 'add:' .. node.id }
        made[#made + 1] = { 'HDEL', P .. 'outbox:entries', 'add:' .. node.id }
        owe(how.hold and '+inf' or NOW, 'add:' .. node.id, 'add', node.queue, words[node.at + 6]) --!write node-owed
        held = how.hold and 'add:' .. node.id
      end
      if held then
        made[#made + 1] = { 'LREM', row_key(how.hold) .. ':held', -1, held }
        call('RPUSH', row_key(how.hold) .. ':held', held) --!write held
      end
    end
  end
end
-- Admits them all, or none. `how`: the running job that spawns them, the root of a flow that is added in rounds (`hold`),
-- whether a root's dedup key that is taken keeps all out (`strict`). Answers their verdicts, or nil and a refusal.
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
  made = {}
  local fine, problem = pcall(write, words, nodes, how)
  if not fine then --!guard nodes-refused
    undo()
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
